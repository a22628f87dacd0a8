# SPDX-License-Identifier: Apache-2.0
"""The slow loop, one process a node: watches the ranks through shared memory, searches, publishes plans."""
