# SPDX-License-Identifier: Apache-2.0
"""Writes the list that Lagom's atlas ships with, from the searches in benchmarks/results that ended on a proven config.

    python -m benchmarks.atlas            # writes lagom/atlas/shipped.json
    python -m benchmarks.atlas --check    # exits with 1 where it would be another

Taken are searches of `lagom bench` records (matrix_*.json), of jobs with one communicator of all ranks, whose final
A/B has an interval above 1, and so has the comparison of the arms in the next process: 3 channels were confirmed in one
process and 6 % slower in the next (default-fsdp-8192, 4 GPUs). The record holds all of the key but the regime, because
Y was not seen: GPU, NCCL, ranks (in the command line), one node, and the transport, by the variables that the job was
started with.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.matrix.page_values import result
from lagom.atlas import AtlasEntry, Key, key_of
from lagom.atlas.entries_of_config import found_at
from lagom.atlas.sources import ENTRIES, SHIPPED
from lagom.journal import ConfigRecord, SiteRecord
from lagom.records import Function, Site

RESULTS = Path(__file__).parent / "results"
ONE_NODE = "--standalone"


def entries_in(path: Path) -> Iterator[AtlasEntry]:
    """Those of one file of the matrix."""
    data = json.loads(path.read_text())
    for name, row in data["rows"].items():
        record = row.get("record") or {}
        for run in record.get("runs", []):
            outcome = run.get("outcome") or {}
            if outcome.get("verdict") != "improved" or outcome["speedup_low"] <= 1.0:
                continue
            again = result(data, name, run["arm"])  # in the process that compared all arms
            if again is None or again["low"] is None or again["low"] <= 1.0:
                continue
            if (key := _key(record, run)) is None:
                continue
            searched = zip(run["sites"], outcome["configs_chosen"], strict=False)  # the lightest sites are not
            configs = [(_site(site), ConfigRecord.model_validate(config).config()) for site, config in searched]
            yield AtlasEntry(
                key=key,
                found=found_at(configs),
                speedup=round(outcome["speedup"], 4),
                low=round(outcome["speedup_low"], 4),
                high=round(outcome["speedup_high"], 4),
                origin=f"{path.name}, {name}, {run['arm']}",
            )


def _key(record: dict[str, Any], run: dict[str, Any]) -> Key | None:
    """None where the record does not show that all ranks were on one node."""
    command, environ = record["command"], record["environ"]
    if ONE_NODE not in command:
        return None
    major, minor, patch = map(int, run["nccl"].split("."))
    return key_of(
        gpu=run["gpu"],
        nccl_version=major * 10000 + minor * 100 + patch,
        peer_access=environ.get("NCCL_P2P_DISABLE", "0") == "0",
        ranks=int(command[command.index("--nproc-per-node") + 1]),
        nodes=1,
    )


def _site(site: dict[str, Any]) -> Site:
    record = SiteRecord.model_validate(site)
    function = next(function for function in Function if function.word == record.function)
    return Site(record.index, function, record.bytes, record.calls_per_iteration, record.context)


def shipped_text() -> str:
    """The file, one entry a line."""
    entries = [entry for path in sorted(RESULTS.glob("matrix_*.json")) for entry in entries_in(path)]
    rows = [json.dumps(one, separators=(", ", ": ")) for one in ENTRIES.dump_python(tuple(entries), exclude_none=True)]
    return "[\n" + ",\n".join(rows) + "\n]\n"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where it would be another")
    text = shipped_text()
    if parser.parse_args(arguments).check:
        return int(SHIPPED.read_text() != text)
    SHIPPED.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
