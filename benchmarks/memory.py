# SPDX-License-Identifier: Apache-2.0
"""What Lagom keeps in memory: ``python -m benchmarks.memory [--runs 3] [--json FILE]``.

Runs the demo (8 virtual ranks, no GPU) and reads, ten times a second, the size of the shared region and the largest
resident set that the kernel reports of the controller (``VmHWM`` of /proc/<pid>/status). Bytes; one row a run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.evidence import circumstances, save

SAMPLE_SECONDS = 0.1


def measure() -> dict[str, int]:
    """One demo. Raises RuntimeError if it fails."""
    with tempfile.TemporaryDirectory(prefix="lagom-memory-") as folder:
        shared = Path(folder) / "shm"
        shared.mkdir(mode=0o700)
        environ = {**os.environ, "LAGOM_SHM_DIR": str(shared), "LAGOM_DIR": f"{folder}/log"}
        job = subprocess.Popen([sys.executable, "-m", "lagom", "demo"], env=environ, stdout=subprocess.DEVNULL)
        region = controller = 0
        while job.poll() is None:
            region = max([region, *sizes(shared)])
            controller = max(controller, peak_of_controller(str(shared)))
            time.sleep(SAMPLE_SECONDS)
        if job.returncode != 0 or not region or not controller:
            raise RuntimeError(f"the demo ended with {job.returncode}: region {region}, controller {controller} bytes")
        return {"region_bytes": region, "controller_peak_bytes": controller}


def sizes(shared: Path) -> list[int]:
    """Bytes of each region; a file may go while it is looked at."""
    found = []
    for path in shared.glob("lagom-*"):
        try:
            found.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return found


def peak_of_controller(shared: str) -> int:
    """Peak resident bytes of the controller whose region lies in ``shared``; 0 if there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environ = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            if b"lagom.controller" in command and shared.encode() in environ:
                status = (process / "status").read_text()
                return next((int(line.split()[1]) * 1024 for line in status.splitlines() if "VmHWM" in line), 0)
        except OSError:
            continue
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    wanted = parser.parse_args()
    runs = [measure() for _ in range(wanted.runs)]
    save(wanted.json, {**circumstances("memory of the shared region and of the controller in a demo"), "runs": runs})


if __name__ == "__main__":
    main()
