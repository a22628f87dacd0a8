# SPDX-License-Identifier: Apache-2.0
"""Everything that has to be seen on GPUs, as named rows: ``python -m benchmarks.matrix --list``. See ../README.md."""
