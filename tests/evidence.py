# SPDX-License-Identifier: Apache-2.0
"""What every piece of evidence says about how it came to be: command, commit, machine, date."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def circumstances(what: str) -> dict[str, Any]:
    """The head of an evidence file. ``what``: one line that says what was done."""
    return {
        "what": what,
        "command": " ".join(["python -m", sys.argv[0] if "/" not in sys.argv[0] else _module(), *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def _module() -> str:
    """``tests.system.storm`` of the path that ``python -m`` puts into ``sys.argv``."""
    path = Path(sys.argv[0]).resolve()
    inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.name)
    name = ".".join(inside.with_suffix("").parts)
    return name.removesuffix(".__main__")


def commit() -> str:
    """The checkout's commit; with ``+`` if what is built or run here has been changed since. Where the tree travelled
    without its history, LAGOM_COMMIT names it."""
    if named := os.environ.get("LAGOM_COMMIT"):
        return named
    try:
        head = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "csrc", "tuner_plugin", "lagom", "tests")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def machine() -> str:
    """Cores, memory, and how busy it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.machine()}, load average {load}, nice {os.nice(0)}"
    )


def save(path: Path | None, evidence: dict[str, Any]) -> None:
    """Prints it, and keeps it where it is wanted."""
    text = json.dumps(evidence, indent=1)
    print(text, flush=True)
    if path is not None:
        path.write_text(text + "\n")
