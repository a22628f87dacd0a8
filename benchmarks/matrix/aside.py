"""Two "nodes" on one machine: a communicator that spans them is left to NCCL, and the log says so."""

from __future__ import annotations

from typing import Any

from benchmarks.matrix.place import Place
from benchmarks.matrix.plain import run_plain, told
from benchmarks.matrix.rows import Row
from lagom.journal import LOG_NAME, read
from lagom.wire.library import plugin_path


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Without us; and by variables alone, as on two machines, where each node's first rank starts its controller."""
    command, environ, folder = place.command(row), place.environ(row), place.folder / row.name
    arms: dict[str, Any] = dict(earlier.get("arms", {}))
    if "off" not in arms:
        arms["off"] = run_plain(command, folder, "off", None, environ, budget / 2)
    if "variables" not in arms:
        log, plugin = folder / "variables", str(plugin_path())
        ours = {"NCCL_TUNER_PLUGIN": plugin, "NCCL_PROFILER_PLUGIN": plugin, "LAGOM_MODE": "tune"}
        named = {"LAGOM_JOB_ID": f"matrix-{row.name}", "LAGOM_DIR": str(log)}
        arms["variables"] = run_plain(command, folder, "variables", None, {**environ, **ours, **named}, budget / 2)
        path = log / LOG_NAME
        arms["variables"]["log"] = told(list(read(path)) if path.exists() else [])
    said = arms["variables"]["log"]["standing_aside"]
    exits = [arm["exit"] for arm in arms.values()]
    return {"complete": True, "arms": arms, "verdict": {"exits": exits, "standing_aside": said}}
