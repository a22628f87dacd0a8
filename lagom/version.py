# SPDX-License-Identifier: Apache-2.0
"""The release of lagom. The plugin says the same (`tuner_plugin/plugin.h`)."""

from pathlib import Path

__version__ = "0.1.0"


def commit_of_build() -> str:
    """The commit that the installed libraries were built from; a plus sign: with changes. Empty where it is unknown."""
    note = Path(__file__).parent / "_lib" / "commit"  # setup.py writes it
    return note.read_text().strip() if note.exists() else ""
