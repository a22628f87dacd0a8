# SPDX-License-Identifier: Apache-2.0
"""The one base of every error a user can meet.

An error's text is one clear sentence that ends with what to do about it; the command line prints it and nothing else. A
bug of ours is no LagomError and shows its traceback.
"""

from __future__ import annotations


class LagomError(Exception):
    """Something outside this program is wrong; the text says what, and what to do about it."""


class SettingError(LagomError):
    """An option or environment variable has a value that cannot be used."""


class JournalError(LagomError):
    """A decision log that cannot be read or was written by another schema."""


class UsageError(LagomError):
    """A command was asked for something that it cannot do as things stand."""
