# SPDX-License-Identifier: Apache-2.0
"""The course of a search: what a process is started with, what stands in the record, and when it ends."""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lagom.environment import conf_files
from lagom.experiment import runner
from lagom.experiment.arm import Task
from lagom.experiment.request import Request
from lagom.experiment.store import BadRecord, RunRecord, Store
from lagom.start import StartGroup, Transport, known_factors
from lagom.tune import PLAIN, TunePlan, TuneResult, next_trial, run_tune
from lagom.tune.compare import ATTEMPTS
from lagom.tune.course import (
    LEAST_LIMIT,
    MoreTime,
    kept_text,
    leave_out_set,
    needs_more_time,
    plain_nccl,
    shortest_text,
)
from lagom.tune.stages import SearchAim, TuneRecord, plan_for
from lagom.tune.tune_result import PlainNccl, tried_of
from tests.unit.tune.simulated import SOCKET_GROUPS, over_sockets, plain_count

GROUPS = SOCKET_GROUPS[0], SOCKET_GROUPS[3]  # nearly alike: neither is left out
AIM = SearchAim(transport="sockets", groups=list(GROUPS))
Gives = Callable[[int, StartGroup], RunRecord]


def process(value: float | None, seconds: float = 1.0, **fields: object) -> RunRecord:
    """The record of a process that did what it should, but for ``fields``."""
    return RunRecord.model_validate({"kind": "process", "value": value, "seconds": seconds, "ended": "us", **fields})


def store_of(request: Request, aim: SearchAim | None = None) -> Store[TuneRecord]:
    return Store(request, TuneRecord, aim=aim)


def by_model(number: int, group: StartGroup) -> RunRecord:
    return process(over_sockets(group) + number % 3)


def settings_of(task: Task) -> dict[str, str]:
    """What a process is started with."""
    assert task.arm is not None
    return {name: value for name, value in task.arm.environ.items() if name.startswith("NCCL_")}


@dataclass
class Machine:
    """Stands in for the processes: keeps what each was started with."""

    folder: Path
    gives: Gives = by_model
    started: list[tuple[Request, Task]] = field(default_factory=list)
    limits: list[float | None] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def request(
        self, budget: float | None = None, command: tuple[str, ...] = ("train",), metric: str = "step (.+)"
    ) -> Request:
        self.folder.mkdir(exist_ok=True)
        return Request(command, self.folder, metric=metric, budget=budget)

    def run(
        self,
        request: Request,
        task: Task,
        store: Store[TuneRecord],
        time_left: float | None,
        say: Callable[[str], None],
    ) -> RunRecord:
        assert task.arm is not None
        settings = settings_of(task)
        self.started.append((request, task))
        self.limits.append(time_left)
        group = next((one for one in SOCKET_GROUPS if one.settings == settings), PLAIN)
        run = self.gives(len(store.record.runs), group)
        run.arm, run.stage, run.round, run.settings = task.arm.name, task.stage, task.round, task.arm.settings
        return run

    def tune(
        self,
        budget: float | None = None,
        command: tuple[str, ...] = ("train",),
        metric: str = "step (.+)",
        simulated_seconds: float | None = None,
    ) -> tuple[TunePlan, TuneResult]:
        request = self.request(budget, command, metric)
        store = store_of(request, AIM.model_copy())
        return run_tune(request, store, self.said.append, simulated_seconds)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path)
    monkeypatch.setattr(runner, "run_task", found.run)
    return found


def test_each_process_has_its_number_and_its_group_s_settings(machine: Machine) -> None:
    plan, result = machine.tune(command=("train", "--out=/ckpt/{trial}/x", "{trial}"))
    assert (result.verdict, result.group) == ("improved", GROUPS[0])
    runs = store_of(machine.request(command=("train", "--out=/ckpt/{trial}/x", "{trial}"))).record.runs
    assert len(runs) == len(machine.started) < plan.most_processes, "two confirming rounds were enough"
    for number, (run, (request, task)) in enumerate(zip(runs, machine.started, strict=True), 1):
        assert request.command == ("train", f"--out=/ckpt/{number}/x", str(number))
        assert request.environ["LAGOM_TRIAL"] == str(number)
        assert run.settings == settings_of(task)
        assert (run.arm == PLAIN.name) == (not run.settings)
    assert 3 * plain_count([run.arm for run in runs]) > len(runs)


def test_a_record_on_disk_is_gone_on_with(machine: Machine) -> None:
    """Ctrl-C after seven processes."""

    def interrupt(number: int, group: StartGroup) -> RunRecord:
        if number == 7:
            raise KeyboardInterrupt
        return by_model(number, group)

    machine.gives = interrupt
    with pytest.raises(KeyboardInterrupt):
        machine.tune()
    assert len(store_of(machine.request()).record.runs) == 7
    machine.gives = by_model
    _, result = machine.tune()
    assert result.verdict == "improved"
    kept = len(store_of(machine.request()).record.runs)
    assert len(machine.started) == kept + 1, "the one that was under way begins anew"
    machine.tune()
    assert len(machine.started) == kept + 1, "what is known is not measured again"


def test_no_process_is_started_whose_sample_could_not_be_kept(machine: Machine) -> None:
    """Something is in the way of the record: a training run of minutes would be for nothing."""
    store_of(machine.request()).path.with_suffix(f".{os.getpid()}.partial").mkdir()
    with pytest.raises(BadRecord, match="cannot be written"):
        machine.tune()
    assert machine.started == []


def test_plain_nccl_that_keeps_failing_ends_the_search(machine: Machine) -> None:
    """A job that does not run at all would be started again and again; the same command tries anew."""
    machine.gives = lambda number, group: process(None, exit=3, ended="itself", output=["no such data set"])
    _, result = machine.tune()
    assert result.verdict == "unfinished"
    assert plain_count([run.arm for run in store_of(machine.request()).record.runs]) >= ATTEMPTS
    assert len(machine.started) <= len(GROUPS) * ATTEMPTS + ATTEMPTS + 1
    assert "no such data set" in machine.said[-1]
    machine.gives = by_model
    _, result = machine.tune()
    assert result.verdict != "unfinished"
    assert store_of(machine.request()).record.runs[-1].counted, "it has gone on"


def test_a_process_of_plain_nccl_that_fails_now_and_then_ends_nothing(machine: Machine) -> None:
    times = itertools.count()

    def sometimes(number: int, group: StartGroup) -> RunRecord:
        broken = group is PLAIN and next(times) % 3 == 1
        return process(None, exit=3, ended="itself") if broken else by_model(number, group)

    machine.gives = sometimes
    assert machine.tune()[1].verdict == "improved"


def test_a_job_without_nccl_is_not_started_again(machine: Machine) -> None:
    machine.gives = lambda number, group: process(
        None, ended="itself", called_nccl=False
    )  # whatever it is started with
    _, result = machine.tune()
    assert result.verdict == "unfinished"
    assert sum(not settings_of(task) for _, task in machine.started) == 1
    assert "no rank was seen to call NCCL" in machine.said[-1]


def test_a_job_with_too_few_calls_is_measured_by_wall_time_from_then_on(machine: Machine) -> None:
    machine.gives = lambda number, group: process(
        over_sockets(group) if number else None, ended="itself", called_nccl=True
    )
    assert machine.tune(metric="")[1].verdict == "improved"
    assert [request.measure for request, _ in machine.started] == ["calls"] + ["wall"] * (len(machine.started) - 1)


def test_values_of_two_measures_are_never_compared(machine: Machine) -> None:
    """One process that ended early by itself, among others that were measured by their calls."""
    machine.gives = lambda number, group: process(
        None if number == 3 else over_sockets(group), ended="itself" if number == 3 else "us", called_nccl=True
    )
    assert machine.tune(metric="")[1].verdict == "improved"
    assert {request.measure for request, _ in machine.started} == {"calls"}


def test_a_budget_that_is_less_than_a_process_is_said_to_be(machine: Machine) -> None:
    """Going on with the same command would change nothing."""
    machine.tune(budget=5)
    assert machine.started == []
    assert machine.said[-1].endswith("the next one needs at least 27 s: use --budget 27 or more.")
    assert "continues" not in machine.said[-1]


def more(machine: Machine, budget: float, tuned: tuple[TunePlan, TuneResult]) -> MoreTime | None:
    request = machine.request(budget)
    return needs_more_time(request, tuned[0], store_of(request).record, tuned[1])


@pytest.mark.parametrize("budget", [5.0, 40.0, 200.0, 400.0])
def test_a_search_without_an_answer_ends_with_the_time_limit_that_it_names(
    budget: float, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither group gains anything; a process takes 20 s. Until the largest plan has nothing to show any more."""
    clock = [0.0]
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    chance = random.Random(7)

    def one(number: int, group: StartGroup) -> RunRecord:
        clock[0] += 20.0
        return process(chance.gauss(100.0, 5.0), seconds=20.0)

    machine.gives = one
    named, tuned = budget, machine.tune(budget=budget)
    while (found := more(machine, named, tuned)) is not None:
        assert found.budget > named or tuned[1].verdict == "unfinished"
        named, before = found.budget, len(machine.started)
        tuned = machine.tune(budget=named)
        assert tuned[1].verdict != "unfinished", "the limit was enough"
        if before:  # else it was not known what a process takes
            assert len(machine.started) - before <= found.missing
        assert len(machine.started) > before
        assert found.text.startswith(f"the same command with --budget {named // 60}m: ") == (named % 60 == 0)
    assert tuned[1].verdict == "nothing_resolved"
    largest, runs = plan_for(tuned[0].groups, 20.0, None), store_of(machine.request(named)).record.runs
    assert (largest.screen, largest.confirm) == (2, 6)
    assert next_trial(largest, tried_of(runs, higher_is_better=False)) is None


def test_where_more_processes_would_show_nothing_no_more_time_is_asked_for(machine: Machine) -> None:
    assert more(machine, 1e6, machine.tune(budget=1e6)) is None, "it is improved"
    machine.folder /= "fails"
    machine.gives = lambda number, group: process(None, ended="itself", exit=1)
    assert more(machine, 30.0, machine.tune(budget=30.0)) is None, "plain NCCL gives nothing"


def test_what_is_kept_of_an_earlier_call_is_counted(machine: Machine) -> None:
    assert kept_text([]) == ""
    machine.tune()
    runs = store_of(machine.request()).record.runs
    assert kept_text(runs) == f"continued: kept {len(runs)} processes of 3 groups, plain NCCL among them."
    screened = process(1.0, stage="design", arm="design 1")
    assert kept_text([*runs[:1], screened]).startswith("continued: kept 1 process of 1 group and 1 that screen")


def test_the_process_that_is_not_compared_counts_in_the_budget_of_the_call_that_has_run_it(machine: Machine) -> None:
    """It takes long to end, say: nothing is started after the budget. The next call need not run it again, has the
    budget for itself, and goes by the same plan."""
    request = machine.request(budget=1020)
    store = store_of(request)
    store.record.aim = AIM.model_copy(update={"look_seconds": 1000.0})
    first, result = run_tune(request, store, machine.said.append, used_seconds=1000.0)
    assert (machine.started, result.verdict) == ([], "unfinished")
    assert machine.said[-1].endswith("the same command continues.")
    machine.gives = lambda number, group: process(over_sockets(group), seconds=30.0)
    store = store_of(request)
    assert store.record.aim is not None
    assert store.record.aim.look_seconds == 1000.0
    second, _ = run_tune(request, store, machine.said.append)
    assert machine.started
    assert first == second == plan_for(GROUPS, 30.0, 20.0)


def test_the_plan_is_made_by_what_the_first_process_took(machine: Machine) -> None:
    machine.gives = lambda number, group: process(over_sockets(group), seconds=30.0)
    assert machine.tune(budget=1200)[0].most_processes * 30 <= 1200
    quick = Machine(machine.folder / "quick", lambda number, group: process(over_sockets(group), seconds=1.0))
    runner.run_task = quick.run
    assert quick.tune(budget=1200)[0].screen == 2


def test_what_is_left_is_counted_down_in_processes(machine: Machine) -> None:
    machine.tune()
    said = [re.search(r"\((?:at most (\d+) left|the last one)\)", line) for line in machine.said]
    counts = [int(found[1] or 0) for found in said if found is not None]
    assert len(counts) == len(machine.started)
    assert counts[-1] == 0
    assert all(later < earlier for earlier, later in itertools.pairwise(counts))


def test_a_simulated_job_s_search_does_not_depend_on_how_long_its_processes_take(machine: Machine) -> None:
    """A busy machine: the limit is simulated time, of which each process counts the same."""
    searches = []
    for name, seconds in (("idle", 1.0), ("busy", 500.0)):
        one = Machine(machine.folder / name)
        one.gives = lambda number, group, seconds=seconds: process(over_sockets(group) + number % 3, seconds)  # type: ignore[misc]
        runner.run_task = one.run
        plan, result = one.tune(budget=20.0, simulated_seconds=2.0)
        searches.append((plan, result, [settings_of(task) for _, task in one.started]))
        assert one.said[-1].startswith("simulated time limit reached, processes left: ")
        assert one.limits == [None] * 10, "no process is ended by the wall clock"
    assert searches[0] == searches[1]


@pytest.mark.parametrize(("seconds", "asked", "later"), [(100.0, 7.0, 7.0), (1.0, 1e6, LEAST_LIMIT), (1.0, 7.0, 7.0)])
def test_no_process_gets_more_time_than_the_user_allows(
    seconds: float, asked: float, later: float, machine: Machine
) -> None:
    def three(number: int, group: StartGroup) -> RunRecord:
        if number == 3:
            raise KeyboardInterrupt
        return process(over_sockets(group), seconds=seconds)

    machine.gives = three
    request = replace(machine.request(), run_limit=asked)
    with pytest.raises(KeyboardInterrupt):
        run_tune(request, store_of(request, AIM.model_copy()))
    first, *others = [started.run_limit for started, _ in machine.started]
    assert first == asked, "nothing is known yet of how long a process takes"
    assert set(others) == {later}


# -- what is set already


def test_a_process_of_the_design_that_sets_nothing_is_plain_nccl(machine: Machine) -> None:
    """Where no group is known, a row without a setting has no other one either."""
    machine.gives = lambda number, group: process(100.0)
    aim = SearchAim(transport="NVLink", groups=[], factors={"NCCL_BUFFSIZE": ["8388608"], "NCCL_MAX_CTAS": ["8"]})
    plan, result = run_tune(machine.request(), store_of(machine.request(), aim))
    started = [settings_of(task) for _, task in machine.started]
    assert {} in plan.rows(1)
    assert all(started.count(dict(row)) >= plan.rows(1).count(row) for row in plan.rows(1))
    assert result.verdict == "nothing_resolved"


def test_what_the_user_has_set_stays_and_is_said() -> None:
    groups, said = leave_out_set(SOCKET_GROUPS, PlainNccl({"NCCL_MIN_NCHANNELS": "2"}))
    assert [group.name for group in groups] == ["4x4 sockets"]
    assert len(said) == len(SOCKET_GROUPS) - 1
    assert all(line.endswith("NCCL_MIN_NCHANNELS is set by you, and stays.") for line in said)
    by_file = PlainNccl({}, {"/etc/nccl.conf": {"NCCL_SOCKET_NTHREADS": "1"}})
    assert leave_out_set(SOCKET_GROUPS, by_file)[0] == []
    assert leave_out_set(SOCKET_GROUPS, PlainNccl({"NCCL_DEBUG": "INFO"})) == (list(SOCKET_GROUPS), [])


@pytest.mark.parametrize("cap", ["NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_MAX_NRINGS"])
def test_a_limit_of_the_user_that_more_channels_would_undo_leaves_them_out(cap: str) -> None:
    groups, said = leave_out_set(SOCKET_GROUPS, PlainNccl({cap: "2"}))
    assert [group.name for group in groups] == ["4x4 sockets"]
    assert all(line.endswith(f" is left out: {cap} is set by you, and stays.") for line in said)
    factors = known_factors(Transport.IB, taken=[cap])
    assert not {"NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"} & set(factors)
    assert "NCCL_MIN_P2P_NCHANNELS" in factors
    assert "NCCL_MIN_P2P_NCHANNELS" not in known_factors(Transport.IB, taken=["NCCL_MAX_P2P_NCHANNELS"])


def test_what_torch_reads_is_the_users_too() -> None:
    plain = plain_nccl({"TORCH_NCCL_HIGH_PRIORITY": "0", "NCCL_DEBUG": "INFO", "NCCL_VERSION": "2.28", "PATH": "/bin"})
    assert plain.text == "plain NCCL here means: TORCH_NCCL_HIGH_PRIORITY=0"
    assert "TORCH_NCCL_HIGH_PRIORITY" in known_factors(Transport.NVLINK)
    assert "TORCH_NCCL_HIGH_PRIORITY" not in known_factors(Transport.NVLINK, taken=plain.settings)


def test_plain_nccl_is_the_environment_and_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".nccl.conf").write_text("NCCL_IB_HCA=mlx5\nNCCL_BUFFSIZE=1\n")
    found = plain_nccl({"NCCL_BUFFSIZE": "2", "PATH": "/bin"})
    assert found.variables == {"NCCL_BUFFSIZE": "2"}
    assert found.files[str(tmp_path / ".nccl.conf")] == {"NCCL_IB_HCA": "mlx5", "NCCL_BUFFSIZE": "1"}
    assert found.settings["NCCL_BUFFSIZE"] == "2", "the environment wins"
    assert found.settings["NCCL_IB_HCA"] == "mlx5"


def test_the_named_file_takes_the_place_of_the_one_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".nccl.conf").write_text("NCCL_IB_HCA=mlx5\n")
    named = tmp_path / "mine.conf"
    named.write_text("NCCL_SOCKET_NTHREADS=1\n")
    found = plain_nccl({"NCCL_CONF_FILE": str(named)})
    assert found.files == {str(named): {"NCCL_SOCKET_NTHREADS": "1"}}
    assert f"NCCL_SOCKET_NTHREADS=1 ({named})" in found.text
    assert leave_out_set(SOCKET_GROUPS, found)[0] == []
    assert conf_files({"NCCL_CONF_FILE": str(named)}) == (named, Path("/etc/nccl.conf"))
    assert conf_files({"NCCL_CONF_FILE": ""})[0] == tmp_path / ".nccl.conf"


def test_how_a_process_is_measured_is_said_beforehand(tmp_path: Path) -> None:
    assert "10 steady samples" in shortest_text(Request(("a",), tmp_path, samples=10, metric="step (.+)"))
    by_calls = shortest_text(Request(("a",), tmp_path, samples=10))
    assert "lasts 30 s" in by_calls, "ten looks, two seconds apart, after the third that settles"
