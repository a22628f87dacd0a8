# SPDX-License-Identifier: Apache-2.0
"""Reads every wheel there is and writes down what was found: ``python -m tests.abi.digest`` (an hour of network; or
minutes with libraries kept by LAGOM_ABI_KEEP=1).

* ``tests/abi/layouts.json``: symbols of each release and every plugin struct, once (they are the same in all releases
  that have them; where one was not, this program would say so and stop). `make test` compares our C with it.
* ``lagom/doctor/nccl_builds.json``: what the plugin must know of a build to reach into its communicators.
* ``tuner_plugin/nccl_builds.h``: the same as C. ``--header`` writes only this one, from the JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.abi.reading import Reading, read
from tests.abi.wheels import available, library

ROOT = Path(__file__).resolve().parents[2]
LAYOUTS = ROOT / "tests" / "abi" / "layouts.json"
BUILDS = ROOT / "lagom" / "doctor" / "nccl_builds.json"
HEADER = ROOT / "tuner_plugin" / "nccl_builds.h"

HEAD = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_builds.h - made by `python -m tests.abi.digest` from lagom/doctor/nccl_builds.json; do not edit.
 *
 * Every nvidia-nccl wheel from 2.21.5 on, by the build id of its libnccl.so.2: bytes from &comm->tunerContext to
 * members of struct ncclComm, from the library's own debug information. A build that is not here is not reached into.
 */
#ifndef LAGOM_NCCL_BUILDS_H
#define LAGOM_NCCL_BUILDS_H

#include <stdint.h>

#define LAGOM_BUILD_ID_TEXT 41 /* 20 bytes in hex, and an end */

struct lagom_nccl_build {
    char build_id[LAGOM_BUILD_ID_TEXT];
    int32_t version; /* as ncclGetVersion says: 23007 = 2.30.7 */
    int32_t max_threads, thresholds, ranks, comm_hash, channels, end_magic;
};

"""


def digest(readings: Iterable[Reading]) -> dict[str, Any]:
    """``{"structs": {name: layout}, "releases": {version: {"symbols": [...], "structs": [...]}}}``."""
    structs: dict[str, Any] = {}
    releases: dict[str, Any] = {}
    for reading in readings:
        for name, layout in reading.structs.items():
            if structs.setdefault(name, layout) != layout:
                sys.exit(f"{reading.wheel}: {name} is not what it was in the wheels before it; a new adapter is needed")
        found = {"symbols": list(reading.symbols), "structs": sorted(reading.structs)}
        if releases.setdefault(reading.wheel.version, found) != found:
            sys.exit(f"{reading.wheel} looks up other symbols than the other wheels of its release")
    return {"structs": dict(sorted(structs.items())), "releases": releases}


def c_table(records: Iterable[dict[str, Any]]) -> str:
    """The header."""
    columns = ("max_threads", "thresholds", "ranks", "comm_hash", "channels", "end_magic")
    rows = []
    for record in records:
        numbers = ", ".join(str(record[column]) for column in ("code", *columns))
        what = f"{record['version']} {record['wheel']} {record['machine']}"
        rows.append(f'    {{"{record["build_id"]}", {numbers}}}, /* {what} */\n')
    table = "static const struct lagom_nccl_build lagom_nccl_builds[] = {\n"
    return f"{HEAD}{table}{''.join(rows)}}};\n\n#endif\n"


def write_json(path: Path, data: object) -> None:
    """Sorted where order means nothing, one line a leaf: made to be read in a diff."""
    path.write_text(json.dumps(data, indent=1) + "\n")


def main(arguments: list[str]) -> None:
    """Everything, or only the header."""
    if arguments != ["--header"]:
        readings = []
        for wheel in [w for cuda in ("cu12", "cu13") for m in ("x86_64", "aarch64") for w in available(cuda, m)]:
            with library(wheel) as path:
                readings.append(read(path, wheel))
            print(wheel, readings[-1].build_id, flush=True)
        readings.sort(key=lambda reading: (reading.wheel.code, reading.wheel))
        write_json(LAYOUTS, digest(readings))
        write_json(BUILDS, [reading.record() for reading in readings])
    HEADER.write_text(c_table(json.loads(BUILDS.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
