# SPDX-License-Identifier: Apache-2.0
"""The real controller, killed, stopped and fed with garbage while it tunes real ranks."""

from __future__ import annotations

import mmap
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lagom import journal
from lagom.demo.stage import Scene
from lagom.journal.reader import Tail
from lagom.sim.virtual.call_log import load_configs
from lagom.sim.virtual.job_controller import JobController
from lagom.sim.virtual.virtual_job import VirtualJob
from lagom.wire.layout import CALL_RING_CAPACITY, KERNEL_RING_CAPACITY, ffi
from lagom.wire.peek import peek_region
from tests.system.support import Job
from tests.tiers import amount
from tests.waiting import wait_until

SCENE = Scene(ranks=4, layers=3, tokens=2048)
COMM_ID = 0x1A60D
ENOUGH = 12  # calls, more than an iteration: soon ranks have to wait for whoever reads what they tell


@contextmanager
def tuning(job: Job, scratch: Path) -> Iterator[tuple[JobController, VirtualJob, Tail]]:
    """A job being tuned by the real controller."""
    with JobController(job.environ, job.folder) as controller:
        controller.wait_for_region()
        with VirtualJob(SCENE.spec(), scratch, job.environ) as ranks:
            yield controller, ranks, Tail(job.folder)


class Log:
    """What the controller has written so far."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self.events: list[journal.schema.Base] = []

    def leases(self) -> dict[int, journal.PlanPublished]:
        """Committed plans with a candidate, by epoch."""
        self.events += self._tail.unread()
        committed = {event.epoch for event in self.events if isinstance(event, journal.PlanCommitted)}
        plans = [event for event in self.events if isinstance(event, journal.PlanPublished)]
        return {plan.epoch: plan for plan in plans if plan.epoch in committed and plan.end_call is not None}

    def wait_for_trial(self) -> journal.PlanPublished:
        """The next lease of a trial that is committed from now on."""
        known = set(self.leases())

        def fresh() -> list[journal.PlanPublished]:
            return [plan for epoch, plan in self.leases().items() if epoch not in known and plan.purpose == "trial"]

        return wait_until(fresh, "a trial to be committed", pause=0.005)[0]


def is_gone(pid: int) -> bool:
    """Dead or stopped: a signal takes a moment."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "TZX"


@dataclass(frozen=True)
class Left:
    """What a controller left behind: from ``call`` on, ranks are on one of the incumbents with these channels."""

    call: int
    channels: frozenset[int | None]


def left_behind(plans: list[journal.PlanPublished], region: Path) -> Left:
    """By the plans in its log, and by the last one in the region: it may have gone on to that one already."""
    calls = [plan.end_call or 0 for plan in plans]
    channels = {record.config().channels for plan in plans for record in plan.incumbent}
    last = peek_region(region).groups[0].plan
    if last is not None:  # else it is half written, and no rank takes it
        calls += [last.start_call, last.end_call]
        channels |= {site.incumbent.channels for site in last.sites}
    return Left(max(calls), frozenset(channels))


def calls_of_all(region: Path) -> int:
    """What even the slowest rank has made."""
    return min(slot.calls for slot in peek_region(region).groups[0].slots)


@pytest.mark.slow
@pytest.mark.parametrize("signal_sent", [signal.SIGKILL, signal.SIGSTOP])
def test_trial_without_its_controller_ends(signal_sent: signal.Signals, job: Job, tmp_path: Path) -> None:
    """Three times the controller is gone or frozen in the middle of a trial: after it all are on the incumbent."""
    with tuning(job, tmp_path) as (controller, ranks, tail):
        log, quiet = Log(tail), []
        for _ in range(3):
            trial, pid = log.wait_for_trial(), peek_region(job.region).controller_pid
            controller.send(signal_sent)
            if signal_sent == signal.SIGKILL:
                controller.kill()
            wait_until(lambda pid=pid: is_gone(pid), "the controller to be gone")
            left = left_behind([plan for plan in log.leases().values() if plan.epoch >= trial.epoch], job.region)
            wait_until(lambda left=left: calls_of_all(job.region) > left.call + ENOUGH, "calls without a controller")
            quiet.append((left, calls_of_all(job.region)))
            if signal_sent == signal.SIGKILL:
                controller.start()
            else:
                controller.send(signal.SIGCONT)
        log.wait_for_trial()  # and the next controller, or the same one, goes on tuning
        ranks.stop()
        ranks.finish()
        assert ranks.differences() == []
    calls = load_configs(tmp_path, COMM_ID, 0)
    for left, end in quiet:
        ran = {config.channels for config in calls[left.call : end]}
        allowed = {SCENE.spec(1).fabric.channels if c is None else c for c in left.channels}
        allowed.add(1)  # the logging call's
        assert ran <= allowed, f"from call {left.call} ranks ran {ran}, the incumbents' are {allowed}"


@pytest.mark.slow
def test_controllers_killed_at_random_moments_leave_the_ranks_agreed(job: Job, tmp_path: Path) -> None:
    """The real controller, killed again and again under load: in learning, in an offer, in a trial, in between."""
    kills, dice = amount(3, 100), random.Random(7)
    with tuning(job, tmp_path) as (controller, ranks, tail):
        log = Log(tail)
        log.wait_for_trial()
        for _ in range(kills):
            time.sleep(dice.uniform(0.1, 2.0))
            controller.kill()
            assert ranks.running()
            controller.start()
        log.wait_for_trial()
        ranks.stop()
        ranks.finish()
        assert ranks.differences() == []


def regions_of_noise() -> list[tuple[int, int]]:
    """(offset, bytes) of header, plans and rings: all that is promised to be survived."""
    region = "struct lagom_region"
    calls = ffi.sizeof("struct lagom_call_record") * CALL_RING_CAPACITY
    kernels = ffi.sizeof("struct lagom_kernel_span") * KERNEL_RING_CAPACITY
    spans = [(ffi.offsetof(region, "header"), ffi.sizeof("struct lagom_header"))]
    spans += [(ffi.offsetof(region, "plans", n), ffi.sizeof("struct lagom_plan")) for n in range(2)]
    spans += [(ffi.offsetof(region, "calls", n), calls) for n in range(4)]
    spans += [(ffi.offsetof(region, "kernels", n), kernels) for n in range(4)]
    for n in range(4):
        spans += [(ffi.offsetof(region, "slots", n, name), 8) for name in ("call_head", "call_tail")]
        spans += [(ffi.offsetof(region, "processes", n, name), 8) for name in ("kernel_head", "kernel_tail")]
    return spans


@pytest.mark.slow
def test_controller_survives_noise(job: Job, tmp_path: Path) -> None:
    """Random bytes over header, plans and rings while it tunes: it may learn nonsense, it may not die nor disagree."""
    dice, places = random.Random(3), regions_of_noise()
    with tuning(job, tmp_path) as (controller, ranks, tail):
        Log(tail).wait_for_trial()
        with controller.region.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        end = time.monotonic() + amount(2, 20)
        while time.monotonic() < end:
            offset, size = dice.choice(places)
            at = offset + dice.randrange(size)
            length = min(dice.choice((1, 8, 64, 4096)), offset + size - at)
            memory[at : at + length] = dice.randbytes(length)
            time.sleep(0.002)
            controller.check()
            assert ranks.running()
        ranks.stop()
        ranks.finish()
        assert ranks.differences() == []
        controller.check()
