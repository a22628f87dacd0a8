# SPDX-License-Identifier: Apache-2.0
"""``python -m lagom`` is the command line, and so is the script ``lagom``."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Ctrl-C ends it without a traceback, also while the commands are still being imported."""
    try:
        from lagom.cli.main import main as command_line
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    command_line()


if __name__ == "__main__":
    main()
