# SPDX-License-Identifier: Apache-2.0
"""What a search gives whole processes, or what it costs them, beside settings by hand, other searches and plain NCCL.

    python -m benchmarks.whole_runs --gpus 4 --nccl-230 libnccl.so.2 --out whole_runs.json --budget 520
    python -m benchmarks.whole_runs --gpus 4 --jobs cost-fsdp-4096,cost-ddp-8192 --rounds 6 --out cost.json
    python -m benchmarks.whole_runs --rehearse --out /tmp/h.json      # the same processes, tiny, with gloo

Each round runs every arm of every job once, in an order of its own, as a process of its own from start to end. The
processes of a round start together and wait before their first step (``--turns`` of the jobs); then one after the other
is let go while the rest waits. So a start costs its time once a round, and no start falls into another arm's steps.

The file holds every process with all its steps, and of those that search the log: program, windows with their samples,
outcome. It is written after each process; the same ``--out`` continues. ``whole_runs_page.py`` makes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.matrix.place import Place
from benchmarks.matrix.results_file import PATHS, setup_of
from benchmarks.matrix.rows import Row
from benchmarks.matrix.single_runs import steps_of
from benchmarks.whole_run_jobs import ARMS, BY_HAND, DEFAULT_JOBS, JOBS, SEARCH, SEARCHES, Arm
from lagom import journal
from lagom.experiment.process import ProcessStart, leave_in_order, run_process
from lagom.files import write_whole
from lagom.journal.schema import Base

#: The first process of each job: whether it runs at all, and how long a step is, so that the others get their number.
LOOK, LOOK_STEPS, LEAST_STEPS = "look", 24, 12
START_LIMIT = 150.0
#: From a process's last step to its end, and the first step's extra time.
END_SECONDS = 6.0
#: In the file of a gate: no step waits any more.
OPEN = 1 << 40
#: Of a process that searched, what a later search can be judged on.
KEPT_EVENTS = (journal.RankJoined, journal.Communicator, journal.Program, journal.Move, journal.Outcome)
KEPT_RANKS = 1
CHUNK = "chunk"  # the knob that the settings by hand need
LOOK_SEARCH_SECONDS = 5.0


# -- one process


def run_one(arguments: argparse.Namespace, place: Place) -> None:
    """Start one arm of one job behind its gate, and write what it has measured."""
    row, folder, gate = row_of(arguments.job, arguments.steps), place.folder, place.folder / arguments.one
    command = place.command(row, "--turns", str(gate))
    options, environ = options_of(arguments.job, arguments.arm), {**place.environ(row), **arm_of(arguments.arm).environ}
    ended = run_process(ProcessStart(command, folder, f"{arguments.one}-log", options, environ))
    steps = steps_of(folder / f"{arguments.one}-log.out")
    events = ended.seen.events
    found = {
        "job": arguments.job,
        "arm": arguments.arm,
        "exit": ended.exit,
        "ended": ended.ended,
        "seconds": round(ended.seconds, 1),
        "ms": [step["ms"] for step in steps],
        "step_ends": [round(step["wall_ns"] / 1e9, 3) for step in steps],
        **moments(steps, events),
        "log": list(kept(events)) if arguments.arm in (*SEARCHES, LOOK) else [],
        "output": ended.seen.last_lines() if ended.exit else [],
    }
    write_whole(folder / f"{arguments.one}.json", json.dumps(found))


def moments(steps: Sequence[dict[str, Any]], events: Sequence[Base]) -> dict[str, int | None]:
    """The first step that began after all ranks had agreed on the first plan, and after the search had ended; None if
    there was none."""
    found: dict[str, int | None] = {"agreed_step": None, "ended_step": None}
    for name, kind in (("agreed_step", journal.PlanCommitted), ("ended_step", journal.Outcome)):
        at = next((event.t for event in events if isinstance(event, kind)), None)
        if at is not None:
            began = (step["wall_ns"] / 1e9 - step["ms"] / 1e3 for step in steps)
            found[name] = next((number for number, start in enumerate(began) if start >= at), None)
    return found


def kept(events: Sequence[Base]) -> Iterator[dict[str, Any]]:
    """Events as the log has them, without what is at its default; of the ranks one."""
    ranks = 0
    for event in events:
        ranks += isinstance(event, journal.RankJoined)
        if isinstance(event, KEPT_EVENTS) and (not isinstance(event, journal.RankJoined) or ranks <= KEPT_RANKS):
            yield {"event": event.kind, **event.model_dump(mode="json", by_alias=True, exclude_defaults=True)}


def row_of(name: str, steps: int) -> Row:
    """A job as a row of the matrix."""
    job = JOBS[name]
    return Row(name, "", "", job.script, (*job.options, "--steps", str(steps)), job.regime, job.nccl)


def arm_of(name: str) -> Arm:
    """The first process of a job is one that searches."""
    return ARMS[SEARCH if name == LOOK else name]


def options_of(job: str, arm: str) -> tuple[str, ...] | None:
    """Of `lagom run`; None without it."""
    options = arm_of(arm).options
    seconds = LOOK_SEARCH_SECONDS if arm == LOOK else JOBS[job].search_seconds if arm in SEARCHES else None
    return options if options is None or seconds is None else (*options, "--search-seconds", f"{seconds:g}")


# -- all of them


@dataclass
class Waiting:
    """A process that was started and waits before its first step."""

    job: str
    arm: str
    round: int
    name: str
    worker: subprocess.Popen[bytes]
    folder: Path
    ranks: int

    def is_ready(self) -> bool:
        """Whether every rank waits."""
        return all((self.folder / f"{self.name}.{rank}").exists() for rank in range(self.ranks))

    def let_go(self, limit: float) -> dict[str, Any]:
        """Run it to its end; one that takes longer is ended."""
        write_gate(self.folder / self.name, OPEN)
        try:
            self.worker.wait(limit)
        except subprocess.TimeoutExpired:
            self.end()
        return self.found()

    def found(self) -> dict[str, Any]:
        """What it wrote; of one that could not, its last words."""
        file, said = self.folder / f"{self.name}.json", self.folder / f"{self.name}-log.out"
        measured: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"job": self.job, "arm": self.arm}
        if not file.exists():
            last = said.read_text(errors="replace").splitlines()[-12:] if said.exists() else []
            measured |= {"exit": None, "ended": "limit", "ms": [], "output": last}
        return {"round": self.round, **measured}

    def end(self) -> None:
        """End it in order."""
        if self.worker.poll() is None:
            self.worker.terminate()
            try:
                self.worker.wait(20.0)
            except subprocess.TimeoutExpired:
                self.worker.kill()
                self.worker.wait()


def write_gate(file: Path, step: int) -> None:
    """In one step: ranks read it all the time."""
    write_whole(file, str(step))


class Study:
    """The file of results and the processes that fill it."""

    def __init__(self, arguments: argparse.Namespace, place: Place) -> None:
        self._arguments, self._place, self._began = arguments, place, time.monotonic()
        self._jobs = tuple(filter(None, arguments.jobs.split(",")))
        found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        versions = {} if place.rehearse else place.versions()
        session = {"began": time.strftime("%Y-%m-%d"), "gpus": place.gpus, "rehearsed": place.rehearse, **versions}
        if any(setup_of(earlier) != setup_of(session) for earlier in found.get("sessions", [])):
            raise SystemExit(
                f"{arguments.out} was measured with other GPUs, NCCL or torch; name another file with --out"
            )
        self._data: dict[str, Any] = {
            "sessions": [*found.get("sessions", []), {**session, "arguments": sys.argv[1:]}],
            "arms": {name: None if arm.options is None else list(arm.options) for name, arm in ARMS.items()},
            "jobs": found.get("jobs", {}),
            "processes": found.get("processes", []),
        }

    def left(self) -> float:
        """Seconds until no process is let go any more."""
        return float(self._arguments.budget) - (time.monotonic() - self._began)

    def run(self) -> bool:
        """Everything that is missing and fits; whether nothing is missing any more."""
        missing = [job for job in self._jobs if job not in self._data["jobs"]]
        if missing and not self._look(missing):
            return False
        return all(self._round(number) for number in range(self._arguments.rounds))

    def _look(self, jobs: Sequence[str]) -> bool:
        """One short process of each job under `lagom run`: does it work, and how long is a step?"""
        waiting = [self._start(job, LOOK, 0, LOOK_STEPS) for job in jobs]
        try:
            self._wait_until_ready(waiting)
            for one in waiting:
                found = one.let_go(60.0)
                if reason := self._why_not(found):
                    print(f"{one.job} cannot be measured here: {reason}", flush=True)
                    return False
                times = found["ms"]
                self._data["jobs"][one.job] = self._job(one.job, statistics.median(times[len(times) // 3 :]))
        finally:
            end_all(waiting)
        self._write()
        return True

    def _why_not(self, found: dict[str, Any]) -> str:
        """What is wrong with a job's first process; empty if nothing is."""
        if found["exit"] != 0:
            return f"exit {found['exit']}\n  " + "\n  ".join(found["output"])
        if self._place.rehearse:
            return ""
        joined = next((event for event in found["log"] if event["event"] == "rank_joined"), None)
        if joined is None:
            return "no rank has loaded the plugin"
        print(f"{found['job']}: NCCL {joined['nccl']}, {', '.join(joined['knobs'])} can be set", flush=True)
        needs_chunks = {*JOBS[found["job"]].arms} & {*BY_HAND}
        if needs_chunks and CHUNK not in joined["knobs"]:
            return "chunk sizes cannot be set; --nccl-230 names the NCCL to preload"
        return ""

    def _job(self, name: str, step_ms: float) -> dict[str, Any]:
        job = JOBS[name]
        asked = {"search": self._arguments.auto_seconds or job.seconds, "others": self._arguments.other_seconds}
        steps = {what: job.steps or max(LEAST_STEPS, round(seconds * 1e3 / step_ms)) for what, seconds in asked.items()}
        print(f"{name}: {step_ms:.1f} ms a step; steps of a search and of the others: {steps}", flush=True)
        return {**asdict(job), "step_ms": step_ms, "steps": steps}

    def _round(self, number: int) -> bool:
        """What is missing of one round; whether all of it was measured."""
        ended = (one for one in self._data["processes"] if one["round"] == number and one["exit"] == 0)
        done = {(one["job"], one["arm"]) for one in ended}
        wanted = [one for one in order(number, self._jobs) if one not in done]
        if not wanted:
            return True
        if self.left() < self._needed(*wanted[0]) + 25.0:
            print(f"round {number}: {self.left():.0f} s left, not enough for a start", flush=True)
            return False
        waiting = [self._start(job, arm, number, self._steps(job, arm)) for job, arm in wanted]
        late = []
        try:
            self._wait_until_ready(waiting)
            for one in waiting:
                if self.left() < self._needed(one.job, one.arm):
                    print(f"round {number}: {self.left():.0f} s left, not enough for {one.job} {one.arm}", flush=True)
                    late.append(one)
                else:
                    self._measure(one)
        finally:
            end_all(waiting)
        return not late

    def _measure(self, one: Waiting) -> None:
        found = one.let_go(2.0 * self._needed(one.job, one.arm) + 20.0)
        self._data["processes"].append(found)
        self._write()
        times = found["ms"]
        about = f"{statistics.fmean(times[len(times) // 2 :]):.1f} ms in its last half" if times else "no step"
        agreed, over = found.get("agreed_step"), found.get("ended_step")
        print(
            f"[{self.left():.0f} s left] round {one.round} {one.job} {one.arm}: exit {found['exit']}, {len(times)} "
            f"steps, {about}, agreed at step {agreed}, search over at step {over}",
            flush=True,
        )

    def _steps(self, job: str, arm: str) -> int:
        return int(self._data["jobs"][job]["steps"]["search" if arm in SEARCHES else "others"])

    def _needed(self, job: str, arm: str) -> float:
        """Seconds that it takes once it is let go."""
        return self._steps(job, arm) * float(self._data["jobs"][job]["step_ms"]) / 1e3 + END_SECONDS

    def _start(self, job: str, arm: str, number: int, steps: int) -> Waiting:
        folder, name = self._place.folder, f"{job}-{arm.replace(' ', '_')}-{number}-{os.getpid()}"
        folder.mkdir(parents=True, exist_ok=True)
        write_gate(folder / name, 0)
        line = [sys.executable, "-m", "benchmarks.whole_runs", "--one", name, "--job", job, "--arm", arm]
        line += ["--steps", str(steps), "--gpus", str(self._place.gpus)]
        line += ["--work", str(folder), "--python", self._place.python]
        line += ["--nccl-230", self._place.nccl_230] if self._place.nccl_230 else []
        line += ["--rehearse"] if self._place.rehearse else []
        worker = subprocess.Popen(line, stdin=subprocess.DEVNULL)
        return Waiting(job, arm, number, name, worker, folder, self._place.gpus)

    def _wait_until_ready(self, waiting: Sequence[Waiting]) -> None:
        """Until all wait or have ended; raises SystemExit if one does neither."""
        clock = time.monotonic()
        while not all(one.is_ready() or one.worker.poll() is not None for one in waiting):
            if time.monotonic() - clock > START_LIMIT or self.left() < 0.0:
                late = ", ".join(f"{one.job} {one.arm}" for one in waiting if not one.is_ready())
                raise SystemExit(f"{late}: not started after {time.monotonic() - clock:.0f} s")
            time.sleep(0.1)
        print(f"{len(waiting)} processes started in {time.monotonic() - clock:.1f} s", flush=True)

    def _write(self) -> None:
        """The whole file in one step, a process a line."""
        head = json.dumps({name: part for name, part in self._data.items() if name != "processes"}, indent=1)
        lines = ",\n".join(json.dumps(one) for one in self._data["processes"])
        write_whole(self._arguments.out, PATHS.sub("", f'{head[:-2]},\n "processes": [\n{lines}\n]}}\n'))


def order(number: int, jobs: Sequence[str]) -> list[tuple[str, str]]:
    """Every arm of every job, shuffled by the number of the round; the jobs one after the other, by turns the first."""
    found = []
    for at in range(len(jobs)):
        job = jobs[(at + number) % len(jobs)]
        arms = JOBS[job].arms
        found += [(job, arm) for arm in random.Random(f"{job} {number}").sample(arms, len(arms))]
    return found


def end_all(waiting: Sequence[Waiting]) -> None:
    """End those that still run, all at once."""
    for one in waiting:
        if one.worker.poll() is None:
            one.worker.terminate()
    for one in waiting:
        one.end()


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("whole_runs.json"), help="results; an earlier file continues")
    parser.add_argument("--nccl-230", help="libnccl.so.2 of release 2.30.3 or later, to preload")
    parser.add_argument("--jobs", default=DEFAULT_JOBS, help=f"of {', '.join(JOBS)}; separated by commas")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--auto-seconds", type=float, help="steps of a process that searches; default: by job")
    parser.add_argument("--other-seconds", type=float, default=5.5, help="steps of the others, as seconds")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds, after which no process is let go")
    parser.add_argument("--rehearse", action="store_true", help="tiny jobs with gloo: no measurement")
    parser.add_argument("--python", default=sys.executable, help="Python interpreter of the jobs, which has torch")
    parser.add_argument("--work", type=Path, help="folder for logs; default: a temporary one")
    for name, kind in (("--one", str), ("--job", str), ("--arm", str), ("--steps", int)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = options()
    leave_in_order()
    with tempfile.TemporaryDirectory(prefix="whole_runs_") as scratch:
        folder = (arguments.work or Path(scratch)).absolute()
        rehearse = "gloo" if arguments.rehearse else ""
        place = Place(arguments.gpus, folder, arguments.nccl_230, arguments.python, rehearse)
        if arguments.one:
            run_one(arguments, place)
        else:
            study = Study(arguments, place)
            complete = study.run()
            print("complete" if complete else f"not complete: the same --out {arguments.out} continues", flush=True)
            sys.exit(0 if complete else 3)


if __name__ == "__main__":
    main()
