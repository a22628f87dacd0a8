# SPDX-License-Identifier: Apache-2.0
"""Lines of schema 1 as events of this one.

Schema 1 had sentences where fields are now, so this is the one place that parses sentences: those of the releases
that wrote it, which do not change any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_KEPT = re.compile(r": (kept|taken)\b")
_FLOOR = re.compile(r"fewest resources|\bfloor\b")
_CHANGE = re.compile(r"\b(channels|chunk|threads) (\d+)(K?) to (\d+)K?\b")
#: How a reason began, and the cause it stands for.
_CAUSES = (
    (re.compile(r"the controller .*was killed"), "controller_died"),
    (re.compile(r"the communicator spans \d+ nodes"), "several_nodes"),
    (re.compile(r"profile not replayed"), "config_refused"),
    (re.compile(r"the profile is for another job"), "other_program"),
    (re.compile(r"nothing of the profile came into force"), "not_agreed"),
    (re.compile(r"no rank of this job registered"), "no_rank"),
)


def upgrade(data: dict[str, Any]) -> dict[str, Any]:
    """A parsed line of schema 1, as its writer would write it today; what it did not say keeps its default."""
    change: Callable[[dict[str, Any]], dict[str, Any]] | None = _UPGRADES.get(str(data.get("event")))
    return {**data, **({} if change is None else change(data)), "schema": 2}


def _move(data: dict[str, Any]) -> dict[str, Any]:
    """``phase`` was the tuner's and held nothing beyond the purpose."""
    reason, verdict = str(data.get("reason")), data.get("verdict")
    found: dict[str, Any] = {"phase": "floor" if _FLOOR.search(reason) else ""}
    found["kept"] = verdict in ("better", "confirmed") or (verdict == "tie" and bool(_KEPT.search(reason)))
    found["against"] = "stock" if data.get("purpose") in ("baseline", "final") else "incumbent"
    if (change := _CHANGE.search(reason)) is not None:
        unit = 1024 if change[3] else 1
        found |= {"knob": change[1], "from": int(change[2]) * unit, "to": int(change[4]) * unit}
    return found


def _passthrough(data: dict[str, Any]) -> dict[str, Any]:
    reason = str(data.get("reason"))
    found = next((cause for pattern, cause in _CAUSES if pattern.match(reason)), "")
    return {"cause": data.get("cause") or found}


def _job_end(data: dict[str, Any]) -> dict[str, Any]:
    return {"config": data.get("profile", "")}


_UPGRADES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "move": _move,
    "standing_aside": _passthrough,
    "job_end": _job_end,
}
