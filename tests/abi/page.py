# SPDX-License-Identifier: Apache-2.0
"""The page of a run of ``make test-abi``: ``python -m tests.abi.page results.json`` writes results.md beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEAD = """# NVIDIA's NCCL wheels against our declarations

`make test-abi` downloads each wheel, reads its debug information and compares with it: the plugin symbols it looks up;
each tuner and profiler table, function by function and argument by argument, with `tuner_plugin/nccl_abi.h` as gcc lays
it out and with the virtual ranks' structs; the fields of profiler events that the plugin reads; the distances inside
`struct ncclComm` with `lagom/doctor/nccl_builds.json`. Then the plugin is loaded beside the real library (no GPU) and
must recognise it. `LAGOM_TEST_FULL=1` takes every release there is instead of one of each kind. Made by
`python -m tests.abi.page`; this machine's network and processor are in the times.

| wheel | build id | library | tables compared | event fields compared | threads (NT) | fetched | read |
|---|---|---|---|---|---|---|---|
"""
THREADS = 8  # LAGOM_KNOB_THREADS


def row(wheel: str, found: dict[str, Any]) -> str:
    """One wheel."""
    fields = ", ".join(f"{version}: {count}" for version, count in found["event_fields_compared"].items())
    threads = "recognised" if found["plugin"]["knobs"] & THREADS else "no id to recognise by"
    cells = [
        wheel,
        f"`{found['build_id'][:12]}`",
        f"{found['library_bytes'] / 1e6:.0f} MB",
        ", ".join(found["tables_compared"]),
        fields or "-",
        threads,
        f"{found['fetch_s']:.0f} s",
        f"{found['read_s']:.1f} s",
    ]
    return f"| {' | '.join(cells)} |"


def page(evidence: dict[str, dict[str, Any]]) -> str:
    """The whole text."""
    rows = [row(wheel, found) for wheel, found in evidence.items()]
    seconds = sum(found["fetch_s"] + found["read_s"] for found in evidence.values())
    foot = f"{len(rows)} wheels; {seconds:.0f} s to fetch and read them. Every comparison held."
    return HEAD + "\n".join(rows) + f"\n\n{foot}\n"


if __name__ == "__main__":
    source = Path(sys.argv[1])
    source.with_suffix(".md").write_text(page(json.loads(source.read_text())))
