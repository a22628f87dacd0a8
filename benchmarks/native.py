# SPDX-License-Identifier: Apache-2.0
"""The C programs beside the benchmarks: built as the plugin is, run against the installed library."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "lagom" / "_lib" / "libnccl-tuner-lagom.so"
FLAGS = "-std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -Wshadow -pthread -rdynamic -Icsrc -I."


def build(name: str, folder: Path) -> Path:
    """Compiles ``benchmarks/<name>.c`` with ``benchmarks/latency`` into ``folder``; raises ``CalledProcessError`` if
    gcc does not like it."""
    sources = [path for path in sorted((ROOT / "csrc").rglob("*.c")) if path.name != "dump_layout.c"]
    sources += sorted((ROOT / "benchmarks" / "latency").glob("*.c"))
    program = folder / name
    command = [*shlex.split(os.environ.get("CC", "gcc")), *FLAGS.split(), f"benchmarks/{name}.c"]
    subprocess.run([*command, *map(str, sources), "-o", str(program), "-ldl"], cwd=ROOT, check=True)
    return program


def run(name: str, plugin: Path, *arguments: str) -> list[dict[str, Any]]:
    """Builds and runs a program; the JSON objects it prints, a line each. Raises ``CalledProcessError`` if the plugin
    does not do as it should."""
    with tempfile.TemporaryDirectory(prefix="lagom-latency-") as folder:
        program = build(name, Path(folder))
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("LAGOM_", "NCCL_"))}
        environment |= {"LAGOM_SHM_DIR": folder, "LAGOM_DIR": folder, "LAGOM_JOB_ID": f"latency-{os.getpid()}"}
        command = [str(program), str(plugin.absolute()), *arguments]
        result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]
