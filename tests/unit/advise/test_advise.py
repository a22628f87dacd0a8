"""``lagom advise``: a proposal is never a measurement, and a measurement is never without its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lagom import journal
from lagom.advise import output
from lagom.advise.from_bench import from_record
from lagom.advise.from_log import from_log
from lagom.advise.model import Advice, Advices, Standing, joined
from lagom.bench.store import BenchRecord, RunRecord
from lagom.cli.main import app
from lagom.errors import UsageError
from lagom.journal.schema import records_of
from lagom.profile_file import Fingerprint, Section, write_profile
from lagom.records import Assignment, CommConfig, Function, Site
from lagom.search.session import Move
from lagom.wire.profile import read_environment

SITES = (Site(0, Function.ALL_GATHER, 416 << 20, 12, "hidden"), Site(1, Function.ALL_GATHER, 2 << 30, 1, "exposed"))
STOCK = CommConfig()


def channels(*counts: int | None) -> Assignment:
    return Assignment(tuple(CommConfig(channels=count) for count in counts))


def move(number: int, candidate: Assignment, verdict: str, reason: str = "because") -> journal.Move:
    event = Move(number=number, purpose="trial", candidate=candidate, verdict=verdict, reason=reason, ratio=1.1,
                 ratio_low=1.05, ratio_high=1.15, pairs=4, z=1e8)  # fmt: skip
    return journal.Move.of(event, communicator=0, phase="tuning", iteration=number)


def log(
    moves: list[journal.Move], chosen: Assignment, verdict: str = "improved", headroom: str = "", send_recv: int = 0,
    name: str = "TENSOR_MODEL_PARALLEL_GROUP",
) -> list[Any]:  # fmt: skip
    sites = tuple(journal.SiteRecord.of(site) for site in SITES)
    return [
        journal.JobStart(job="j", mode="tune", headroom=headroom),
        journal.Communicator(communicator=0, comm_id="7", name=name, ranks=8, nodes=1),
        journal.Program(communicator=0, period=13, sites=sites, channels_built=24),
        *moves,
        journal.Outcome(communicator=0, verdict=verdict, reason="1.05x stock in 10 fresh pairs", speedup=1.05,
                        configs_chosen=records_of(chosen), resolvable=0.004),
        journal.JobEnd(reason="over", not_asked=(journal.NotAsked(communicator=0, name="ep", send_recv=send_recv),)),
    ]  # fmt: skip


def about(advices: tuple[Advice, ...], word: str) -> list[Advice]:
    return [advice for advice in advices if word in advice.what]


# -- from a log


def test_headroom_is_proposed_where_the_last_channel_still_paid() -> None:
    path = [move(2, channels(4, 16), "worse"), move(3, channels(4, None), "better", "16 to 24: kept, Z 2 % faster")]
    (found,) = about(from_log(log(path, channels(4, None))), "head-room")
    assert found.standing is Standing.PROPOSAL
    assert "1 of 2 sites ended at NCCL's own 24" in found.evidence
    assert "16 to 24: kept, Z 2 % faster (move #3)" in found.evidence
    assert found.environment["LAGOM_HEADROOM"] == "32:24"
    assert found.arms == ("headroom=32:24",)


def test_headroom_is_proposed_where_one_channel_less_was_slower() -> None:
    path = [move(2, channels(4, None), "better"), move(3, channels(4, 16), "worse", "24 to 16: Z 3 % slower")]
    (found,) = about(from_log(log(path, channels(4, None))), "head-room")
    assert "24 to 16" in found.evidence


@pytest.mark.parametrize(
    "path",
    [
        [move(2, channels(2, 2), "worse", "all at their floor")],  # everything moved: says nothing of the last channel
        [move(2, channels(4, 16), "worse"), move(3, channels(4, None), "tie", "equal")],
        [move(2, Assignment((STOCK, CommConfig(channels=16, chunk_bytes=1 << 20))), "worse"),
         move(3, Assignment((STOCK, STOCK)), "better")],  # the chunk moved as well
    ],
)  # fmt: skip
def test_headroom_is_not_proposed_without_that_evidence(path: list[journal.Move]) -> None:
    assert about(from_log(log(path, channels(4, None))), "head-room") == []


def test_headroom_is_not_proposed_where_fewer_channels_won() -> None:
    path = [move(2, channels(4, 16), "worse"), move(3, channels(4, None), "better")]
    assert about(from_log(log(path, channels(4, 8))), "head-room") == []


def test_a_job_with_headroom_has_measured_it() -> None:
    (kept,) = about(from_log(log([], channels(28, None), headroom="32:24")), "head-room")
    assert kept.standing is Standing.GAIN
    assert kept.environment["NCCL_MIN_NCHANNELS"] == "32"
    (lost,) = about(
        from_log(log([move(2, channels(28, None), "worse")], channels(8, 8), headroom="32:24")), "head-room"
    )
    assert lost.standing is Standing.NO_GAIN
    assert lost.environment == {}
    (untried,) = about(from_log(log([], channels(8, 8), headroom="32:24")), "head-room")
    assert untried.standing is Standing.PROPOSAL


def test_a_cap_is_only_proposed_and_only_if_every_site_has_one() -> None:
    (cap,) = about(from_log(log([], channels(4, 8))), "CTAs")
    assert cap.standing is Standing.PROPOSAL
    assert cap.environment == {"NCCL_MAX_CTAS": "8"}
    assert "not as one cap for the group" in cap.evidence
    assert about(from_log(log([], channels(4, None))), "CTAs") == []
    assert about(from_log(log([], channels(4, 8), verdict="stock_is_best")), "CTAs") == []


def test_threads_that_won_are_proposed() -> None:
    won = Assignment((CommConfig(channels=4, threads=256), CommConfig(channels=4, threads=256)))
    (found,) = about(from_log(log([], won)), "threads")
    assert found.environment == {"NCCL_NTHREADS": "256"}
    assert found.standing is Standing.PROPOSAL


def test_send_recv_is_proposed_with_its_count_and_never_as_measured() -> None:
    found = about(from_log(log([], channels(4, 8), send_recv=480)), "send/recv")
    assert {advice.standing for advice in found} == {Standing.PROPOSAL}
    assert [advice.environment.get("NCCL_MAX_P2P_NCHANNELS") for advice in found][:2] == ["16", "8"]
    assert all("480 send/recv calls" in advice.evidence for advice in found)
    assert about(from_log(log([], channels(4, 8))), "send/recv") == []


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
    advices, _ = from_record(record, "bench.json")
    assert [advice.standing for advice in advices] == [Standing.GAIN, Standing.NO_GAIN]
    assert advices[0].environment == {"NCCL_MAX_P2P_NCHANNELS": "16"}
    assert "1.11" in advices[0].evidence
    assert "8 pairs" in advices[0].evidence


def test_no_difference_is_told_with_what_would_have_shown() -> None:
    advices, _ = from_record(bench(**{"NCCL_NTHREADS=256": 1.0}), "b")
    assert advices[0].standing is Standing.NO_GAIN
    assert "would have shown" in advices[0].evidence


def test_too_few_pairs_stay_a_proposal() -> None:
    record = bench(**{"NCCL_NTHREADS=256": 0.5})
    record = record.model_copy(update={"runs": record.runs[:6]})
    advices, _ = from_record(record, "b")
    assert advices[0].standing is Standing.PROPOSAL


def test_an_arm_that_brought_nothing_is_a_remark() -> None:
    record = bench(**{"NCCL_NTHREADS=256": 1.0})
    record = record.model_copy(update={"runs": [run for run in record.runs if run.arm == "own:stock"]})
    advices, remarks = from_record(record, "b")
    assert advices == ()
    assert remarks == ("env=NCCL_NTHREADS=256 (b): nothing could be measured",)


def test_a_proposal_that_was_measured_is_one_no_more() -> None:
    proposals = from_log(log([], channels(4, 8), send_recv=480))
    measured, _ = from_record(bench(**{"NCCL_MAX_P2P_NCHANNELS=16": 0.9}), "b")
    found = Advices("x", joined(proposals, measured))
    assert [advice.environment for advice in found.gains] == [{"NCCL_MAX_P2P_NCHANNELS": "16"}]
    assert "env=NCCL_MAX_P2P_NCHANNELS=16" not in output.proposed_arms(found)
    assert "env=NCCL_MAX_P2P_NCHANNELS=8" in output.proposed_arms(found)


# -- what comes out

GAIN = Advice("a", Standing.GAIN, "1.10× stock", {"NCCL_MAX_P2P_NCHANNELS": "16"}, arms=("env=A",))
HOPE = Advice("b", Standing.PROPOSAL, "perhaps", {"NCCL_NTHREADS": "256"}, arms=("env=B",))
VAIN = Advice("c", Standing.NO_GAIN, "0.9×", {"NCCL_BUFFSIZE": "1"}, arms=("env=C",))
OTHER = Advice("d", Standing.GAIN, "1.05×", {"NCCL_MAX_P2P_NCHANNELS": "8"})


def test_only_measured_gains_are_exported() -> None:
    assert output.exports(Advices("x", (VAIN, HOPE, GAIN, OTHER))) == ["export NCCL_MAX_P2P_NCHANNELS=16"]
    assert output.exports(Advices("x", (VAIN, HOPE))) == []


def test_the_text_keeps_measured_and_hoped_apart() -> None:
    text = "\n".join(output.lines(Advices("x", (HOPE, GAIN, VAIN)), "torchrun train.py"))
    measured, hoped = text.split("Not measured; worth a try:")
    assert "NCCL_MAX_P2P_NCHANNELS=16" in measured
    assert "NCCL_NTHREADS" not in measured
    assert "NCCL_BUFFSIZE" not in text, "what was measured in vain is not offered"
    assert "lagom bench --arms stock,env=B -- torchrun train.py" in hoped
    assert "No advice" in "\n".join(output.lines(Advices("x")))


def test_megatrons_file_has_what_was_not_measured_commented_out() -> None:
    import importlib.util

    (cap,) = about(from_log(log([], channels(4, 8))), "CTAs")
    text = output.megatron(Advices("x", (cap,)))
    assert "# tp:\n#   max_ctas: 8" in text
    measured = joined((cap,), (Advice("s", Standing.GAIN, "1.04×", arms=("static=8",)),))
    text = output.megatron(Advices("x", measured))
    assert "\ntp:\n  max_ctas: 8" in text
    if importlib.util.find_spec("yaml"):
        import yaml

        assert yaml.safe_load(text) == {"tp": {"max_ctas": 8}}
    (unnamed,) = about(from_log(log([], channels(4, 8), name="mine")), "CTAs")
    assert "no group that Megatron configures" in output.megatron(Advices("x", (unnamed,)))
    assert output.megatron(Advices("x", (GAIN,))) == ""


def test_a_profile_asks_for_the_measured_environment(tmp_path: Path) -> None:
    profile, out = tmp_path / "p", tmp_path / "q"
    write_profile(profile, Fingerprint(), [Section(8, 1, 0)], environment={"NCCL_BUFFSIZE": "8"}, evidence=[{"a": 1}])
    output.write_into_profile(Advices("x", (GAIN, HOPE)), profile, out)
    assert read_environment(out) == {"NCCL_MAX_P2P_NCHANNELS": "16", "NCCL_BUFFSIZE": "8"}
    clash = Advice("a", Standing.GAIN, "1.1×", {"NCCL_BUFFSIZE": "9"})
    with pytest.raises(UsageError, match="another NCCL_BUFFSIZE"):
        output.write_into_profile(Advices("x", (clash,)), profile, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def folder(place: Path, events: list[Any]) -> Path:
    with journal.Journal(place) as out:
        for event in events:
            out.write(event)
    return place


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["advise", *words])


def test_the_command_finds_what_was_measured_beside_the_log(tmp_path: Path) -> None:
    job = folder(tmp_path / "lagom-a", log([], channels(4, 8), send_recv=480))
    assert "Not measured" in run(str(job)).stdout
    assert run(str(job), "--export").stdout == "# nothing was measured to be worth it\n"
    (job / "advise").mkdir()
    (job / "advise" / "bench.json").write_text(bench(**{"NCCL_MAX_P2P_NCHANNELS=16": 0.9}).model_dump_json())
    assert run(str(job), "--export").stdout == "export NCCL_MAX_P2P_NCHANNELS=16\n"
    value = json.loads(run(str(job), "--json").stdout)
    assert value["environment"] == {"NCCL_MAX_P2P_NCHANNELS": "16"}
    assert value["advice"][0]["standing"] == "measured gain"


def test_try_measures_the_proposals_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = folder(tmp_path / "lagom-a", log([], channels(4, 8), send_recv=480))
    asked: list[Any] = []
    monkeypatch.setattr("lagom.bench.run_bench", lambda request, say: asked.append(request))
    assert run("--try", "--dir", str(job), "--rounds", "3", "--", "true", "x").exit_code == 0
    (request,) = asked
    assert request.command == ("true", "x")
    assert request.rounds == 3
    assert request.folder == (job / "advise").absolute()
    assert "env=NCCL_MAX_P2P_NCHANNELS=16" in [arm.name for arm in request.arms]
    assert isinstance(run("--try", "--dir", str(job)).exception, UsageError)
    assert isinstance(run("a", "b").exception, UsageError)
