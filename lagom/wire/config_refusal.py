# SPDX-License-Identifier: Apache-2.0
"""Why a saved config is not used: a cause, what the config was made for and what is here. Decisions read these fields;
the words are the plugin's, so that they are the same in NCCL's log, in ours and on the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from lagom.wire.layout import ffi
from lagom.wire.library import library

#: ``unreadable``: the file, and what is wrong is only in a sentence. ``ranks`` to ``setting``: of another job, NCCL,
#: GPU or environment. ``simulated``: of a simulated job. ``rank``: not every rank was started with its start settings.
#: ``program``: the calls are others.
Cause = Literal["unreadable", "ranks", "nodes", "nccl", "gpu", "peer_access", "setting", "simulated", "rank", "program"]
#: What only the launcher can see.
_OF_SEVERAL_RANKS = {
    "rank": "not every rank was started with its settings",
    "program": "made for another program",
}
_TEXT_BYTES, _FIELD_BYTES = 256, 64


@dataclass(frozen=True, slots=True)
class ConfigRefusal:
    """``wanted`` and ``here`` as text: counts, versions, names of GPUs, values of the variable ``setting``, ``with`` or
    ``without`` (peer access). Empty: not known, or not set."""

    cause: Cause
    wanted: str = ""
    here: str = ""
    setting: str = ""

    @property
    def clause(self) -> str:
        """``made for 16 ranks, this job has 8``"""
        if self.cause in _OF_SEVERAL_RANKS:
            return _OF_SEVERAL_RANKS[self.cause]
        fields, text = ffi.new("struct lagom_refusal *"), ffi.new("char[]", _TEXT_BYTES)
        for name in ("setting", "wanted", "here"):
            setattr(fields, name, getattr(self, name).encode()[: _FIELD_BYTES - 1])
        library().lagom_refusal_text(_FIRST + get_args(Cause).index(self.cause), fields, text, _TEXT_BYTES)
        return ffi.string(text).decode(errors="replace")


#: ``enum lagom_saved_config`` from LAGOM_SAVED_CONFIG_UNREADABLE on has the causes in their order.
_FIRST = 2


def refusal_of(state: int, fields: Any) -> ConfigRefusal | None:
    """From an ``enum lagom_saved_config`` and its ``struct lagom_refusal``; None where nothing is refused. Both may
    be garbage."""
    causes = [cause for cause in get_args(Cause) if cause not in _OF_SEVERAL_RANKS]
    if not _FIRST <= state < _FIRST + len(causes):
        return None
    read = (ffi.string(field).decode(errors="replace") for field in (fields.wanted, fields.here, fields.setting))
    return ConfigRefusal(cast("Cause", causes[state - _FIRST]), *read)
