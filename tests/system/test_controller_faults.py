"""The real controller, killed, stopped and fed with garbage while it tunes real ranks."""

from __future__ import annotations

import mmap
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lagom import journal
from lagom.demo.stage import Scene
from lagom.journal.tail import Tail
from lagom.sim.virtual.agreement import load, unpack
from lagom.sim.virtual.control import ControllerProcess
from lagom.sim.virtual.job import VirtualJob
from lagom.wire.layout import CALL_RING_CAPACITY, KERNEL_RING_CAPACITY, ffi
from tests.system.support import Job
from tests.waiting import wait_until

SCENE = Scene(ranks=4, layers=3, tokens=2048)
COMM_ID = 0x1A60D
PERIOD = 12  # 2 x root, forward and backward gathers and scatters of three layers


@contextmanager
def tuning(job: Job, scratch: Path) -> Iterator[tuple[ControllerProcess, VirtualJob, Tail]]:
    """A job being tuned by the real controller."""
    with ControllerProcess(job.environ, job.folder) as controller:
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


def past(call: int) -> int:
    """An iteration that lies well behind a call."""
    return call // PERIOD + 15


@pytest.mark.slow
@pytest.mark.parametrize("signal_sent", [signal.SIGKILL, signal.SIGSTOP])
def test_trial_without_its_controller_ends(signal_sent: signal.Signals, job: Job, tmp_path: Path) -> None:
    """Three times the controller is gone or frozen in the middle of a trial: after it all are on the incumbent."""
    with tuning(job, tmp_path) as (controller, ranks, tail):
        log, quiet = Log(tail), []
        for _ in range(3):
            lease = log.wait_for_trial()
            controller.send(signal_sent)
            if signal_sent == signal.SIGKILL:
                controller.kill()
            assert lease.end_call is not None
            from_call = max(lease.end_call, max(plan.end_call or 0 for plan in log.leases().values()))
            assert ranks.wait_iteration(past(from_call))
            quiet.append((lease, from_call, ranks.iteration * PERIOD))
            if signal_sent == signal.SIGKILL:
                controller.start()
            else:
                controller.send(signal.SIGCONT)
        log.wait_for_trial()  # and the next controller, or the same one, goes on tuning
        ranks.stop()
        ranks.finish()
        assert ranks.differences() == []
    calls = [unpack(word) for word in load(tmp_path, COMM_ID, 0)]
    for lease, begin, end in quiet:
        incumbent = [record.config() for record in lease.incumbent]
        channels = {config.channels for config in incumbent}
        ran = {config.channels for config in calls[begin:end]}
        allowed = {SCENE.spec(1).fabric.channels if c is None else c for c in channels} | {1}  # the logging call: 1
        assert ran <= allowed, f"after {lease.end_call} ranks ran {ran}, the incumbent is {incumbent}"


@pytest.mark.slow
def test_controllers_killed_at_random_moments_leave_the_ranks_agreed(job: Job, tmp_path: Path) -> None:
    """The real controller, killed again and again under load: in learning, in an offer, in a trial, in between."""
    kills, dice = 100 if os.environ.get("LAGOM_TEST_FULL") else 5, random.Random(7)
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
        end = time.monotonic() + (20 if os.environ.get("LAGOM_TEST_FULL") else 4)
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
