# SPDX-License-Identifier: Apache-2.0
"""One fault: where it is planted and what is written there."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """``source[start:end]`` of ``path`` becomes ``new`` (byte offsets)."""

    path: str  # from the root of the repository
    operator: str
    start: int
    end: int
    new: str

    def planted(self, source: bytes) -> bytes:
        """The file with the fault."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def line(self, source: bytes) -> int:
        """The line of the fault, from 1."""
        return source.count(b"\n", 0, self.start) + 1

    def first_line(self, source: bytes) -> str:
        """The text of that line."""
        return source[source.rfind(b"\n", 0, self.start) + 1 :].split(b"\n", 1)[0].decode()

    def diff(self, source: bytes) -> str:
        """The changed lines alone, ``-`` before and ``+`` after."""
        before, after = source.decode().splitlines(), self.planted(source).decode().splitlines()
        lines = difflib.unified_diff(before, after, n=0, lineterm="")
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))

    def key(self, source: bytes) -> str:
        """Of the path, the changed line and its number among equal ones: other lines of the file may change."""
        text = self.diff(source)
        earlier = source.decode().splitlines()[: self.line(source) - 1].count(self.first_line(source))
        return hashlib.sha256(f"{self.path}\n{text}\n{earlier}".encode()).hexdigest()[:12]
