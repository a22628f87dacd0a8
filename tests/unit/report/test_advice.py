# SPDX-License-Identifier: Apache-2.0
"""Advice on the next start: a proposal is never a measurement, and a measurement is never without its numbers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lagom import journal
from lagom.bench.results import BenchRecord
from lagom.cli.main import app
from lagom.config_file import Fingerprint, SavedConfig, Section, load_config, save_config
from lagom.errors import UsageError
from lagom.experiment.store import ArmWindow, RunRecord
from lagom.journal import RunState
from lagom.journal.schema import records_of
from lagom.records import Assignment, CommConfig, Function, Site
from lagom.report import advice_text as output
from lagom.report.advice import Advice, Advices, Standing, join_advice
from lagom.report.advice_from_bench import advise_from_record, compare_paired, count_rounds
from lagom.report.advice_from_log import advise_from_log
from lagom.search.moves import SearchMove

SITES = (Site(0, Function.ALL_GATHER, 416 << 20, 12, "hidden"), Site(1, Function.ALL_GATHER, 2 << 30, 1, "exposed"))
STOCK = CommConfig()


def advice_of(events: Iterable[Any]) -> tuple[Advice, ...]:
    return advise_from_log(RunState(events))


def channels(*counts: int | None) -> Assignment:
    return Assignment(tuple(CommConfig(channels=count) for count in counts))


def move(number: int, candidate: Assignment, verdict: str, reason: str = "because") -> journal.Move:
    event = SearchMove(number=number, purpose="trial", candidate=candidate, verdict=verdict, reason=reason, ratio=1.1,
                 ratio_low=1.05, ratio_high=1.15, pairs=4, z=1e8)  # fmt: skip
    return journal.Move.of(event, communicator=0, iteration=number)


def log(
    moves: list[journal.Move], chosen: Assignment, verdict: str = "improved", headroom: str = "", send_recv: int = 0,
    name: str = "TENSOR_MODEL_PARALLEL_GROUP", *, cut_short: bool = False,
) -> list[Any]:  # fmt: skip
    sites = tuple(journal.SiteRecord.of(site) for site in SITES)
    return [
        journal.JobStart(job="j", mode="tune", headroom=headroom),
        journal.Communicator(communicator=0, comm_id="7", name=name, ranks=8, nodes=1),
        journal.Program(communicator=0, period=13, sites=sites, channels_built=24),
        *moves,
        journal.Outcome(communicator=0, verdict=verdict, reason="1.05x stock in 10 fresh pairs", speedup=1.05,
                        configs_chosen=records_of(chosen), resolvable=0.004, cut_short=cut_short),
        journal.JobEnd(reason="over", not_asked=(journal.NotAsked(communicator=0, name="ep", send_recv=send_recv),)),
    ]  # fmt: skip


def about(advices: tuple[Advice, ...], word: str) -> list[Advice]:
    return [advice for advice in advices if word in advice.what]


# -- from a log


def test_headroom_is_proposed_where_the_last_channel_still_paid() -> None:
    path = [move(2, channels(4, 16), "worse"), move(3, channels(4, None), "better", "16 to 24: kept, Z 2 % faster")]
    (found,) = about(advice_of(log(path, channels(4, None))), "head-room")
    assert found.standing is Standing.PROPOSAL
    assert "1 of 2 sites ended at NCCL's own 24" in found.evidence
    assert "16 to 24: kept, Z 2 % faster (move #3)" in found.evidence
    assert found.environment["LAGOM_HEADROOM"] == "32:24"
    assert found.arms == ("headroom=32:24",)


def test_headroom_is_proposed_where_one_channel_less_was_slower() -> None:
    path = [move(2, channels(4, None), "better"), move(3, channels(4, 16), "worse", "24 to 16: Z 3 % slower")]
    (found,) = about(advice_of(log(path, channels(4, None))), "head-room")
    assert "24 to 16" in found.evidence


@pytest.mark.parametrize(
    "path",
    [
        [move(2, channels(2, 2), "worse", "all at their floor")],  # everything moved: says nothing of the last channel
        [move(2, channels(None, None), "better"), move(3, channels(1, 16), "worse", "43 % slower")],  # both sites
        [move(2, channels(4, 16), "worse"), move(3, channels(4, None), "tie", "equal")],
        [move(2, Assignment((STOCK, CommConfig(channels=16, chunk_bytes=1 << 20))), "worse"),
         move(3, Assignment((STOCK, STOCK)), "better")],  # the chunk moved as well
    ],
)  # fmt: skip
def test_headroom_is_not_proposed_without_that_evidence(path: list[journal.Move]) -> None:
    assert about(advice_of(log(path, channels(4, None))), "head-room") == []


def test_headroom_is_not_proposed_where_fewer_channels_won() -> None:
    path = [move(2, channels(4, 16), "worse"), move(3, channels(4, None), "better")]
    assert about(advice_of(log(path, channels(4, 8))), "head-room") == []


def test_a_job_with_headroom_has_measured_it_with_tuning_together() -> None:
    (kept,) = about(advice_of(log([], channels(28, None), headroom="32:24")), "head-room")
    assert kept.standing is Standing.PROPOSAL, "its final A/B credits the tuning too"
    assert "what head-room adds to tuning was not measured" in kept.evidence
    assert kept.environment["NCCL_MIN_NCHANNELS"] == "32"
    assert output.format_exports(Advices("x", (kept,))) == []
    tried = [move(2, channels(28, None), "worse")]
    (lost,) = about(advice_of(log(tried, channels(8, 8), headroom="32:24")), "head-room")
    assert lost.standing is Standing.NO_GAIN
    assert lost.environment == {}
    for verdict, chosen in (("cut_short", channels(None, None)), ("improved", channels(8, 8))):
        (cut,) = about(advice_of(log(tried, chosen, verdict, headroom="32:24", cut_short=True)), "head-room")
        assert cut.standing is Standing.PROPOSAL, "what was left untried might have paid"
        assert "28 channels were tried and none was kept, but the search was cut short" in cut.evidence
    for unmeasured in ([], [move(2, channels(28, None), "missing")]):
        (untried,) = about(advice_of(log(unmeasured, channels(8, 8), headroom="32:24")), "head-room")
        assert untried.standing is Standing.PROPOSAL


def test_a_cap_is_only_proposed_and_only_if_every_site_has_one() -> None:
    (cap,) = about(advice_of(log([], channels(4, 8))), "CTAs")
    assert cap.standing is Standing.PROPOSAL
    assert cap.environment == {"NCCL_MAX_CTAS": "8"}
    assert "not as one cap for the group" in cap.evidence
    assert cap.arms == ("env=NCCL_MAX_CTAS=8",), "measured as what would be exported"
    assert about(advice_of(log([], channels(4, None))), "CTAs") == []
    assert about(advice_of(log([], channels(4, 8), verdict="stock_is_best")), "CTAs") == []


#: What gives two: a cap of channels, and threads.
TWO_PROPOSALS = Assignment((CommConfig(channels=4, threads=256), CommConfig(channels=8, threads=256)))


def test_threads_that_won_are_proposed() -> None:
    won = Assignment((CommConfig(channels=4, threads=256), CommConfig(channels=4, threads=256)))
    (found,) = about(advice_of(log([], won)), "threads")
    assert found.environment == {"NCCL_NTHREADS": "256"}
    assert found.standing is Standing.PROPOSAL


def test_send_recv_is_proposed_with_its_count_and_never_as_measured() -> None:
    (found,) = about(advice_of(log([], channels(4, 8), send_recv=480)), "send/recv")
    assert (found.standing, found.environment, found.arms) == (Standing.PROPOSAL, {}, ())
    assert "480 send/recv calls" in found.evidence
    assert "`lagom tune -- CMD`" in found.evidence
    assert about(advice_of(log([], channels(4, 8))), "send/recv") == []


def test_of_two_jobs_in_one_log_the_newest_counts() -> None:
    plain = log([move(2, channels(4, 16), "worse"), move(3, channels(4, None), "better")], channels(4, None))
    raised = log([move(2, channels(28, None), "worse")], channels(8, 8), headroom="32:24")
    (found,) = about(advice_of([*plain, *raised]), "head-room")
    assert found.standing is Standing.NO_GAIN, "the newest job tried it in vain"
    (found,) = about(advice_of([*raised, *plain]), "head-room")
    assert found.standing is Standing.PROPOSAL


# -- from a benchmark


def bench(**seconds: float) -> BenchRecord:
    """Eight rounds of processes: stock's at 1 s, each arm's at its own, with 0.2 % of noise."""
    arms = {f"env={name}": value for name, value in seconds.items()}
    runs = [
        RunRecord(kind="process", arm=arm, round=number, measure="metric", value=value * (1 + 0.002 * (number % 3 - 1)))
        for number in range(8)
        for arm, value in {"own:stock": 1.0, **arms}.items()
    ]
    return BenchRecord(command=["job"], arms=["stock", "own:stock", *arms], runs=runs)


def test_a_benchmark_measures_gains_and_losses() -> None:
    record = bench(**{"NCCL_MAX_P2P_NCHANNELS=16": 0.9, "NCCL_MAX_P2P_NCHANNELS=8": 1.1})
    advices, _ = advise_from_record(record, "bench.json")
    assert [advice.standing for advice in advices] == [Standing.GAIN, Standing.NO_GAIN]
    assert advices[0].environment == {"NCCL_MAX_P2P_NCHANNELS": "16"}
    assert "1.11" in advices[0].evidence
    assert "8 pairs" in advices[0].evidence


def test_no_difference_is_told_with_what_would_have_shown() -> None:
    advices, _ = advise_from_record(bench(**{"NCCL_NTHREADS=256": 1.0}), "b")
    assert advices[0].standing is Standing.NO_GAIN
    assert "would have shown" in advices[0].evidence


def test_too_few_pairs_stay_a_proposal() -> None:
    record = bench(**{"NCCL_NTHREADS=256": 0.5})
    record = record.model_copy(update={"runs": record.runs[:6]})
    advices, _ = advise_from_record(record, "b")
    assert advices[0].standing is Standing.PROPOSAL


def test_an_arm_that_brought_nothing_is_a_remark() -> None:
    record = bench(**{"NCCL_NTHREADS=256": 1.0})
    record = record.model_copy(update={"runs": [run for run in record.runs if run.arm == "own:stock"]})
    advices, remarks = advise_from_record(record, "b")
    assert advices == ()
    assert remarks == ("env=NCCL_NTHREADS=256 (b): nothing could be measured",)


def test_a_proposal_that_was_measured_is_one_no_more() -> None:
    proposals = advice_of(log([], TWO_PROPOSALS))
    measured, _ = advise_from_record(bench(**{"NCCL_MAX_CTAS=8": 0.9}), "b")
    found = Advices("x", join_advice(proposals, measured))
    assert [advice.environment for advice in found.gains] == [{"NCCL_MAX_CTAS": "8"}]
    assert output.list_proposed_arms(found) == ("env=NCCL_NTHREADS=256",)


def processes(seconds: Mapping[str, Sequence[float]]) -> BenchRecord:
    """Rounds of processes: of each arm its time in every round; stock's two of a round stand one after the other."""
    runs = [
        RunRecord(kind="process", arm=arm, round=at // (2 if arm == "own:stock" else 1), measure="metric", value=value)
        for arm, values in seconds.items()
        for at, value in enumerate(values)
    ]
    return BenchRecord(command=["job"], arms=["stock", *seconds], runs=runs)


def noisy(seed: int, typical: float, count: int, spread: float = 0.01) -> list[float]:
    return list(typical * np.exp(np.random.default_rng(seed).normal(0.0, spread, count)))


def test_a_gain_whose_interval_holds_stock_is_none() -> None:
    values = [1 / (1.01 * swing) for swing in (0.97, 1.03, 0.96, 1.04, 0.98, 1.02, 0.97, 1.03)]
    (found,) = advise_from_record(processes({"own:stock": [1.0] * 16, "env=A=1": values}), "b")[0]
    assert found.speedup == pytest.approx(1.01, abs=0.01)
    assert found.standing is Standing.NO_GAIN


def test_caps_that_are_all_equal_to_stock_are_advised_by_chance_in_few_records_only() -> None:
    """Ten settings without effect, eight rounds, skewed noise of 1 %: by intervals alone one record in ten would."""
    alone = together = 0
    for seed in range(120):
        draw = np.random.default_rng(seed)
        arms = {f"env=A={number}": list(1 + 0.01 * draw.exponential(size=8)) for number in range(10)}
        record = processes({"own:stock": list(1 + 0.01 * draw.exponential(size=16)), **arms})
        found = [one for arm in arms if (one := compare_paired(record, arm, "own:stock")) is not None]
        alone += any(one.ratio.low > 1.0 for one in found)
        together += bool(Advices("x", advise_from_record(record, "b")[0]).gains)
    assert alone >= 9
    assert together <= 3


def test_one_true_gain_among_many_arms_is_found_with_the_rounds_that_are_asked_for() -> None:
    rounds = count_rounds(10)
    arms = {f"env=A={number}": noisy(number, 0.9 if number == 3 else 1.0, rounds) for number in range(10)}
    record = processes({"own:stock": noisy(99, 1.0, 2 * rounds), **arms})
    assert Advices("x", advise_from_record(record, "b")[0]).environment() == {"A": "3"}


def test_a_gain_that_chance_could_make_among_so_many_stays_a_proposal() -> None:
    arms = {f"env=A={number}": noisy(number, 0.9 if number == 3 else 1.0, 6) for number in range(10)}
    found, _ = advise_from_record(processes({"own:stock": noisy(99, 1.0, 12), **arms}), "b")
    assert found[0].standing is Standing.PROPOSAL
    assert "more --rounds" in found[0].evidence


def test_headroom_is_held_against_the_same_tuning_without_it() -> None:
    seconds = {"own:stock": noisy(1, 1.0, 16), "own:auto": noisy(2, 0.70, 8), "headroom=32:24": noisy(3, 0.71, 8)}
    (found,) = advise_from_record(processes(seconds), "b")[0]
    assert found.standing is Standing.NO_GAIN
    assert "lagom without head-room" in found.evidence
    (gain,) = advise_from_record(processes({**seconds, "headroom=32:24": noisy(3, 0.6, 8)}), "b")[0]
    assert gain.standing is Standing.GAIN
    assert gain.speedup == pytest.approx(0.7 / 0.6, rel=0.01)
    assert gain.environment["LAGOM_HEADROOM"] == "32:24"
    del seconds["own:auto"]
    (unknown,) = advise_from_record(processes(seconds), "b")[0]
    assert unknown.standing is Standing.PROPOSAL
    assert output.list_proposed_arms(Advices("x", (unknown,))) == ("own:auto", "headroom=32:24")


@pytest.mark.parametrize("arm", ["static=2", "own:static=2"])
def test_a_cap_of_calls_is_no_measurement_of_the_variable(arm: str) -> None:
    if arm.startswith("own:"):
        record = processes({"own:stock": noisy(1, 1.0, 16), arm: noisy(2, 0.8, 8), "own:static=4": noisy(3, 0.9, 8)})
    else:
        windows = [ArmWindow(arm=name, z=[(100.0 + at, typical + at)]) for at in range(8)
                   for name, typical in (("static=2", 80.0), ("static=4", 90.0), ("static=8", 120.0))]  # fmt: skip
        run_ = RunRecord(kind="in job", windows=windows)
        record = BenchRecord(command=["job"], arms=["stock", "static"], runs=[run_])
    (found,) = advise_from_record(record, "b")[0]
    assert found.standing is Standing.PROPOSAL
    assert found.arms == ("env=NCCL_MAX_CTAS=2",)
    assert "no process was started with the variable" in found.evidence
    assert output.format_exports(Advices("x", (found,))) == []


def test_what_lagom_itself_was_told_is_exported_as_it_was_measured() -> None:
    record = processes({"own:stock": [1.0] * 16, "env=NCCL_SOCKET_IFNAME=eth0,eth1,LAGOM_X=1": [0.9] * 8})
    exported = Advices("x", advise_from_record(record, "b")[0]).environment()
    assert exported == {"NCCL_SOCKET_IFNAME": "eth0,eth1", "LAGOM_X": "1"}


def test_two_judgements_of_one_arm_leave_the_careful_one() -> None:
    gain = Advice("a", Standing.GAIN, "1.1×", {"A": "1"}, arms=("env=A=1",))
    vain = Advice("a", Standing.NO_GAIN, "1.0×", {"A": "1"}, arms=("env=A=1",))
    for order in ((gain, vain), (vain, gain)):
        (found,) = join_advice((), order)
        assert found.standing is Standing.NO_GAIN


# -- what comes out

GAIN = Advice("a", Standing.GAIN, "1.10× stock", {"NCCL_MAX_P2P_NCHANNELS": "16"}, arms=("env=A",))
HOPE = Advice("b", Standing.PROPOSAL, "perhaps", {"NCCL_NTHREADS": "256"}, arms=("env=B",))
VAIN = Advice("c", Standing.NO_GAIN, "0.9×", {"NCCL_BUFFSIZE": "1"}, arms=("env=C",))
OTHER = Advice("d", Standing.GAIN, "1.05×", {"NCCL_MAX_P2P_NCHANNELS": "8"})


def test_only_measured_gains_are_exported() -> None:
    assert output.format_exports(Advices("x", (VAIN, HOPE, GAIN, OTHER))) == ["export NCCL_MAX_P2P_NCHANNELS=16"]
    assert output.format_exports(Advices("x", (VAIN, HOPE))) == []


def test_gains_measured_apart_are_not_exported_together() -> None:
    more = Advice("e", Standing.GAIN, "1.2×", {"NCCL_BUFFSIZE": "1"}, arms=("env=NCCL_BUFFSIZE=1",), speedup=1.2)
    less = Advice("f", Standing.GAIN, "1.1×", {"NCCL_NTHREADS": "256"}, arms=("env=NCCL_NTHREADS=256",), speedup=1.1)
    found = Advices("x", (less, more))
    assert output.format_exports(found) == ["export NCCL_BUFFSIZE=1"]
    assert output.list_proposed_arms(found) == ("env=NCCL_BUFFSIZE=1,NCCL_NTHREADS=256",)
    assert "measured alone" in "\n".join(output.format_advice(found))
    both = Advice("g", Standing.NO_GAIN, "1.0×", {"NCCL_NTHREADS": "256", "NCCL_BUFFSIZE": "1"})
    assert output.list_proposed_arms(Advices("x", (less, more, both))) == ()


def test_the_text_keeps_measured_and_hoped_apart() -> None:
    text = "\n".join(output.format_advice(Advices("x", (HOPE, GAIN, VAIN))))
    measured, hoped = text.split("Not measured; worth a try:")
    assert "NCCL_MAX_P2P_NCHANNELS=16" in measured
    assert "NCCL_NTHREADS" not in measured
    assert "NCCL_BUFFSIZE" not in text, "what was measured in vain is not offered"
    assert "lagom bench --arms stock,env=B --rounds 8 -- CMD" in hoped
    assert "No advice" in "\n".join(output.format_advice(Advices("x")))


def test_megatrons_file_has_what_was_not_measured_commented_out() -> None:
    import importlib.util

    (cap,) = about(advice_of(log([], channels(4, 8))), "CTAs")
    text = output.format_megatron(Advices("x", (cap,)))
    assert "# tp:\n#   max_ctas: 8" in text
    gain = Advice("s", Standing.GAIN, "1.04×", arms=("env=NCCL_MAX_CTAS=8",))
    text = output.format_megatron(Advices("x", join_advice((cap,), (gain,))))
    assert "\ntp:\n  max_ctas: 8" in text
    active = text
    several = [*log([], channels(4, 8)), journal.Communicator(communicator=1, comm_id="8", ranks=8, nodes=1)]
    (cap,) = about(advice_of(several), "CTAs")
    text = output.format_megatron(Advices("x", join_advice((cap,), (gain,))))
    assert "# tp:\n#   max_ctas: 8" in text, "of several groups the variable caps all, and only that was measured"
    if importlib.util.find_spec("yaml"):
        import yaml

        assert yaml.safe_load(active) == {"tp": {"max_ctas": 8}}
    (unnamed,) = about(advice_of(log([], channels(4, 8), name="mine")), "CTAs")
    assert "no group that Megatron configures" in output.format_megatron(Advices("x", (unnamed,)))
    assert output.format_megatron(Advices("x", (GAIN,))) == ""


def test_a_saved_config_asks_for_the_measured_environment(tmp_path: Path) -> None:
    config, out = tmp_path / "p", tmp_path / "q"
    save_config(
        SavedConfig(Fingerprint(), (Section(8, 1, 0),), environment={"NCCL_BUFFSIZE": "8"}, evidence=({"a": 1},)),
        config,
    )
    output.write_into_config(Advices("x", (GAIN, HOPE)), config, out)
    assert load_config(out).environment == {"NCCL_MAX_P2P_NCHANNELS": "16", "NCCL_BUFFSIZE": "8"}
    clash = Advice("a", Standing.GAIN, "1.1×", {"NCCL_BUFFSIZE": "9"})
    with pytest.raises(UsageError, match="another NCCL_BUFFSIZE"):
        output.write_into_config(Advices("x", (clash,)), config, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def folder(place: Path, events: list[Any]) -> Path:
    with journal.Journal(place) as out:
        for event in events:
            out.write(event)
    return place


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["report", *words])


def test_the_command_finds_what_was_measured_beside_the_log(tmp_path: Path) -> None:
    job = folder(tmp_path / "lagom-a", log([], TWO_PROPOSALS))
    assert "Not measured" in run(str(job)).stdout
    assert run(str(job), "--export").stdout == "# nothing was measured to be worth it\n"
    (job / "advise").mkdir()
    (job / "advise" / "bench.json").write_text(bench(**{"NCCL_MAX_CTAS=8": 0.9}).model_dump_json())
    assert run(str(job), "--export").stdout == "export NCCL_MAX_CTAS=8\n"
    value = json.loads(run(str(job), "--json").stdout)
    assert value["advice"]["environment"] == {"NCCL_MAX_CTAS": "8"}
    assert value["advice"]["advice"][0]["standing"] == "measured gain"


@pytest.mark.parametrize("option", ["--config", "--megatron"])
def test_a_file_that_cannot_be_written_is_one_sentence(option: str, tmp_path: Path) -> None:
    job = folder(tmp_path / "lagom-a", log([], TWO_PROPOSALS))
    ran = run(str(job), option, str(tmp_path / "none" / "p"))
    assert isinstance(ran.exception, UsageError), ran.exception
    assert str(ran.exception).endswith("cannot be written (there is no such folder); name another file.")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_saved_config_onto_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    job = folder(tmp_path / "lagom-a", log([], TWO_PROPOSALS))
    save_config(SavedConfig(Fingerprint(), (Section(8, 1, 0),)), job / "config.lagom")
    ran = run(str(job), "--config", "/dev/full")
    assert isinstance(ran.exception, UsageError), ran.exception
    assert str(ran.exception).startswith("/dev/full cannot be written (No space left on device)")


def test_the_printed_command_measures_the_proposals_where_the_next_report_finds_them(tmp_path: Path) -> None:
    job = folder(tmp_path / "lagom-a", log([], TWO_PROPOSALS))

    def printed() -> list[str]:
        (line,) = (line for line in run(str(job)).stdout.splitlines() if "lagom bench --arms" in line)
        return shlex.split(line.partition(": ")[2])

    first = printed()
    assert first[-2:] == ["--", "CMD"]
    assert first[first.index("--out") + 1] == str(job / "advise")
    assert int(first[first.index("--rounds") + 1]) > 6, "enough for so many arms"
    arms = first[first.index("--arms") + 1].split(",")
    assert "env=NCCL_MAX_CTAS=8" in arms
    (job / "advise").mkdir()
    (job / "advise" / "bench.json").write_text(BenchRecord(command=["true"], arms=arms).model_dump_json())
    assert printed() == first, "it goes on where all of them are"
    other = BenchRecord(command=["true"], arms=["stock", "own:stock", "env=A=1"])
    (job / "advise" / "bench.json").write_text(other.model_dump_json())
    again = printed()
    assert again[again.index("--out") + 1] == str(job / "advise-2")
    assert run(str(job), "two").exit_code == 2, "one log at a time"


def test_a_saved_config_takes_no_option_that_needs_a_log(tmp_path: Path) -> None:
    save_config(SavedConfig(Fingerprint(), (Section(8, 1, 0),)), tmp_path / "p.lagom")
    assert isinstance(run(str(tmp_path / "p.lagom"), "--export").exception, UsageError)
