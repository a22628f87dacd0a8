# SPDX-License-Identifier: Apache-2.0
"""Measurements, and the pages that are made from them: README.md beside this file."""
