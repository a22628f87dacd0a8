# SPDX-License-Identifier: Apache-2.0
"""``python -m lagom`` is the command line."""

from __future__ import annotations

from lagom.cli.main import main

if __name__ == "__main__":
    main()
