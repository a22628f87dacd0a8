# SPDX-License-Identifier: Apache-2.0
"""The Python half of ``csrc/``: the only place where bytes of the shared region are known."""
