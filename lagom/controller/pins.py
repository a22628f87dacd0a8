"""Rules pinned by hand: those of ``--set`` at the start, and what ``lagom set`` writes into the log folder later."""

from __future__ import annotations

from lagom.controller.options import Options
from lagom.files import read_own
from lagom.settings import split_rules
from lagom.wire.plan import BadRule, Rule, parse_rule


class Pins:
    """The rules in force and the file that may replace them."""

    def __init__(self, options: Options) -> None:
        self._path = options.pins
        self.problems: list[str] = []
        self.rules: tuple[Rule, ...] = tuple(map(parse_rule, options.rules))
        self._stamp = self._stamp_now()

    def changed(self) -> tuple[Rule, ...] | None:
        """The new rules if the file was rewritten since the last look; an unreadable rule keeps the old ones."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return None
        self._stamp, self.problems = stamp, []
        try:
            text = read_own(self._path) if stamp else ""
            self.rules = tuple(map(parse_rule, split_rules(text)))
        except (BadRule, OSError, UnicodeDecodeError) as error:
            self.problems.append(f"{self._path} was not followed: {error}")
        return self.rules

    def _stamp_now(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino
