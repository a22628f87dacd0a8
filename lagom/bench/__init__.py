# SPDX-License-Identifier: Apache-2.0
"""``lagom bench``: how much faster each of several settings makes a job, with confidence intervals. See README.md."""
