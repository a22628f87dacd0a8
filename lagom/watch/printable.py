"""Texts that somebody else wrote, before they reach a terminal."""

from __future__ import annotations


def printable(words: str) -> str:
    """Without what would move a terminal's cursor: shared memory and logs may hold anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)
