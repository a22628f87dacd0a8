"""Words and numbers that both formats share. Unknown ones are refused; NVIDIA's reader would take them for others."""

from __future__ import annotations

import re

from lagom.records import Algorithm, Function, Protocol

FUNCTIONS = {function.word: function for function in Function}
ALGORITHMS = {algorithm.name.lower(): algorithm for algorithm in Algorithm}
PROTOCOLS = {protocol.name.lower(): protocol for protocol in Protocol}
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")


class NotSaid(ValueError):
    """One line or rule that has no counterpart; the text is a clause that says why."""


def function(word: str) -> Function:
    """Raises :class:`NotSaid` with the list."""
    return _one_of(FUNCTIONS, word, "collective")


def algorithm(word: str) -> Algorithm:
    """Raises :class:`NotSaid` with the list."""
    return _one_of(ALGORITHMS, word, "algorithm")


def protocol(word: str) -> Protocol:
    """Raises :class:`NotSaid` with the list."""
    return _one_of(PROTOCOLS, word, "protocol")


def number(text: str, name: str) -> int:
    """A whole decimal number; raises :class:`NotSaid`."""
    if _NUMBER.fullmatch(text.strip()) is None:
        raise NotSaid(f"{name} '{text}' is no whole number")
    return int(text)


def wildcard(text: str, name: str) -> None:
    """A filter that Lagom's rules do not have: only ``-1``, any, can be taken."""
    if text.strip() and number(text, name) != -1:
        raise NotSaid(f"it is only for {name} {text.strip()}, which no rule of Lagom looks at ({WHY[name]})")


WHY = {
    "regBuff": "registration is local to a rank, so ranks could differ",
    "numPipeOps": "how many calls NCCL had in its group at that moment",
}


def channels(count: int) -> int | None:
    """``-1`` and ``0`` leave them to NCCL; raises :class:`NotSaid` for what is no number of channels."""
    if count in (-1, 0):
        return None
    if not 1 <= count <= 64:
        raise NotSaid(f"{count} channels: NCCL has 1 to 64")
    return count


def _one_of(words: dict[str, Function] | dict[str, Algorithm] | dict[str, Protocol], word: str, what: str):  # type: ignore[no-untyped-def]
    found = words.get(word)
    if found is None:
        raise NotSaid(f"there is no {what} '{word}'; it is one of: {', '.join(words)}")
    return found
