# SPDX-License-Identifier: Apache-2.0
"""Writes the names of the table for the plugin: ``python -m lagom.start.c_names > csrc/config/known_variables.h``."""

from __future__ import annotations

from lagom.start.variable_table import VARIABLES


def header() -> str:
    """The text of ``csrc/config/known_variables.h``."""
    names = "\n".join(f'    "{variable.name}",' for variable in VARIABLES)
    return (
        "/* SPDX-License-Identifier: Apache-2.0 */\n"
        "/* known_variables.h - what a saved config may ask for. Written by `python -m lagom.start.c_names` from the\n"
        " * table in lagom/start/variable_table.py, which says what each does; a test compares the two. */\n"
        f"static const char *const known[] = {{\n{names}\n}};\n"
    )


if __name__ == "__main__":
    print(header(), end="")
