# SPDX-License-Identifier: Apache-2.0
"""A launcher of one node, which strikes itself at a stage of its way: `python -m tests.system.nodes_launcher
FOLDER NODE COORDINATES STAGE SIGNAL`. Its job takes 0.3 s, and leaves in FOLDER its settings and its process number.

The exit code is the one that `lagom tune` has: 0, 2 (not enrolled), 3 (a node is gone).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from lagom.nodes import enrolment, heartbeat
from lagom.nodes.enrolment import NotEnrolled, enrol
from lagom.nodes.exchange import Done
from lagom.nodes.folder_exchange import FolderExchange
from lagom.nodes.heartbeat import Life, LifeCheck, Silence
from lagom.nodes.node_facts import facts_of
from lagom.nodes.rounds import EXIT_CODE, NodesEnded, RoundResult, Rounds

VARIABLE = "NCCL_BUFFSIZE"
VALUES = ("1048576", "2097152", "8388608")
#: In the second round, so that there is something before it.
STRUCK_ROUND = 1
LIFE = Life(beat=0.1, silent=1.5)
PR_SET_PDEATHSIG = 1
STAGES = ("enrol", "go", "running", "stop", "done")


class SilenceOfTheStruck(Silence):
    """Nobody is silent before one was struck, however busy the machine is."""

    marked: Path

    def is_too_long(self, value: object) -> bool:
        return super().is_too_long(value) and self.marked.exists()


class EnrolmentCheck(LifeCheck):
    """Whoever was struck while it enrolled is silent also after the mark is gone; a live one that is taken for dead
    enrols once more."""

    def __init__(self, seats: Iterable[int], beat: float, limit: float) -> None:
        super().__init__(seats, beat, limit)
        self._silence = Silence(limit)


class StruckExchange(FolderExchange):
    """Sends this process a signal when a record of the stage was written, or has come."""

    def __init__(self, folder: Path, seat: int, stage: str, number: int) -> None:
        super().__init__(folder)
        record = f"round/{STRUCK_ROUND}/{stage}"
        self._key = {"enrol": f"seat/{seat}", "done": f"{record}/{seat}"}.get(stage, record)
        self._number = number

    def _put_once(self, key: str, data: bytes) -> bytes:
        found = super()._put_once(key, data)
        self._strike(key)
        return found

    def _get(self, key: str) -> bytes | None:
        found = super()._get(key)
        if found is not None and "/stop" not in key:  # as seen by the thread: the launcher itself writes it, too
            self._strike(key)
        return found

    def _strike(self, key: str) -> None:
        if self._number and key.partition("/")[2] == self._key:
            self.strike()

    def strike(self) -> None:
        number, self._number = self._number, 0
        if number:
            SilenceOfTheStruck.marked.touch()
            os.kill(os.getpid(), number)


def start_job(folder: Path, node: str, value: str, number: int) -> subprocess.Popen[bytes]:
    """A process that ends with this one."""
    ran, job = folder / f"ran-{node}", folder / f"job-{node}-{number}"
    script = f'echo "{number} ${VARIABLE}" >> "{ran}"; echo $$ > "{job}"; exec sleep 0.3'
    environ = {**os.environ, VARIABLE: value}
    libc = ctypes.CDLL(None)
    return subprocess.Popen(
        ["sh", "-c", script], env=environ, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    )


def main(folder: Path, node: str, *, coordinates: bool, stage: str, number: int) -> int:
    seat = 0 if coordinates else 1
    SilenceOfTheStruck.marked = folder / "struck"
    heartbeat.Silence = SilenceOfTheStruck  # type: ignore[misc]
    enrolment.LifeCheck = EnrolmentCheck  # type: ignore[misc]
    exchange = StruckExchange(folder / "exchange", seat, stage, number)
    if not coordinates:
        exchange.may_coordinate = False

    def run(
        settings: Mapping[str, str], round_number: int, limit: float | None, is_over: Callable[[bool], bool]
    ) -> Done:
        process = start_job(folder, node, settings.get(VARIABLE, ""), round_number)
        if stage == "running" and round_number == STRUCK_ROUND + 1:
            exchange.strike()
        try:
            while process.poll() is None and not is_over(False):
                time.sleep(0.02)
            ended = "us" if process.poll() is None else "itself"
        finally:
            process.kill()
            process.wait()
        code = process.returncode if ended == "itself" else 0
        return Done.model_validate({"exit": code, "ended": ended, "value": 1.0 if coordinates else None})

    facts = facts_of(["train.py"], {}, plugin="", nccl=0, gpu="")
    try:
        with enrol(exchange, 2, node, facts, 600.0, LIFE) as session:
            rounds = Rounds(session, run)
            if not session.is_coordinator:
                for _ in rounds.follow():
                    pass
                return 0
            for at, value in enumerate(VALUES, 1):
                result: RoundResult = rounds.run({VARIABLE: value}, at, 30.0)
                with (folder / "kept").open("a") as kept:
                    kept.write(f"{at} {value} {' '.join(sorted(result.done))}\n")
            rounds.finish("improved")
            return 0
    except NotEnrolled as error:
        print(error, flush=True)
        return 2
    except NodesEnded as error:
        print(error, flush=True)
        return EXIT_CODE


if __name__ == "__main__":
    where, name, first, when, what = sys.argv[1:]
    sys.exit(main(Path(where), name, coordinates=first == "1", stage=when, number=int(what)))
