# SPDX-License-Identifier: Apache-2.0
"""``lagom profile``: its answer, its files, its numbers, and one sentence for every wrong use."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lagom import timeline
from lagom.cli import profile as profile_command
from lagom.cli.main import app
from lagom.errors import LagomError
from lagom.format import format_percent, format_time
from lagom.report import profile_report, style
from lagom.report.profile_verdict import describe_verdict
from lagom.sim import Simulator, machine, workloads
from lagom.sim.simulated_trace import build_kernel_table, throttled
from lagom.timeline import Profile, kineto
from lagom.timeline.overlap import overlap
from lagom.timeline.trace_coverage import TraceCoverage
from lagom.wire.layout import KERNEL_SPAN, NO_CALL
from tests.tiers import amount

DUMP = Path(__file__).resolve().parents[2] / "data" / "kernels_fsdp_6x_llama8b_layer_T4096_h200x8_rank0.txt.gz"
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def real() -> Profile:
    return timeline.profile(timeline.load(DUMP))


@pytest.fixture(scope="module")
def simulated() -> Profile:
    simulator = Simulator(workloads.fsdp("llama3_8b", layers=4), machine.A40_NVLINK)
    return timeline.profile([build_kernel_table(simulator, 5, rank=rank) for rank in range(2)])


@pytest.fixture(scope="module")
def written(simulated: Profile, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of a profile's folder."""
    return profile_report.write_folder(simulated, tmp_path_factory.mktemp("w") / "out", "where it comes from <&>")


@pytest.fixture
def pictures_unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn but not turned into files, which takes most of the time of a folder."""
    monkeypatch.setattr(style, "to_svg", lambda figure: "<svg></svg>")
    monkeypatch.setattr(style, "save_png", lambda figure, path: None)


def test_the_answer_has_the_numbers_it_speaks_of(real: Profile) -> None:
    said = describe_verdict(real)
    assert said.startswith("Yes: matmuls run 1.3")
    assert format_time(real.overhead.ns) in said
    assert format_percent(real.overhead.share) in said
    lines = profile_report.more(real)
    assert any("compute-bound" in line for line in lines)
    assert any(format_time(real.exposed) in line for line in lines)


def test_the_answer_without_communication_overlap_or_slowdown() -> None:
    def said(rows: list[tuple[int, int, int, str]]) -> str:
        names = sorted({row[3] for row in rows})
        columns = ([10**9 + row[at] for row in rows] for at in (0, 1))
        table = timeline.build(*columns, [r[2] for r in rows], names, [names.index(r[3]) for r in rows])
        return describe_verdict(timeline.profile([table]))

    gather = "ncclDevKernel_AllGather_RING_LL"
    gemm = [(100 * k, 100 * k + 40, 1, "gemm") for k in range(5)]
    assert "no communication" in said(gemm)
    apart = [(100 * k + 50, 100 * k + 90, 2, gather) for k in range(5)]
    assert said(gemm + apart).startswith("No: compute and communication never run at the same time")
    beside = [(100 * k, 100 * k + 40, 2, gather) for k in range(5)]
    assert said(gemm + beside).startswith("Unknown")


def beside(steps: int = 8, jitter: float = 0.0, **factors: float) -> Profile:
    """A step of 1 ms: each kernel in ``factors`` once alone, 100 us, and once beside an AllReduce, that many times as
    long, and up to ``jitter`` longer or shorter."""
    rows: list[tuple[float, float, int, str]] = []
    rng = np.random.default_rng(3)
    for step in range(steps):
        now, half = 10_000.0 * step, 100 * len(factors) + 50
        rows.append((now + half, now + half + 5000, 2, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"))
        for place, (name, factor) in enumerate(factors.items()):
            rows.append((now + 100 * place, now + 100 * place + 99, 1, name))
            start = now + half + 10 + 1000 * place
            rows.append((start, start + 99 * (factor + jitter * rng.uniform(-1, 1)), 1, name))
    names = sorted({row[3] for row in rows})
    start, end = (10**9 + np.array([round(1000 * row[at]) for row in rows]) for at in (0, 1))
    return timeline.profile(
        [timeline.build(start, end, [r[2] for r in rows], names, [names.index(r[3]) for r in rows])]
    )


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ({"gemm": 1.5}, "Yes: matmuls run 1.50× as long beside communication as without it. Overlap costs 49.5 µs of "),
        (
            {"gemm": 0.5, "elementwise": 2.5},
            "Yes: elementwise kernels run 2.50× as long beside communication as without it, matmuls do not. Overlap ",
        ),
        (
            {"gemm": 1.5, "flash": 1.5, "copy": 1.1},
            "Yes: matmuls run 1.50× and attention kernels run 1.50× as long beside communication as without it. ",
        ),
        ({"odd": 3.0, "even": 1.1}, "Yes: odd runs 3.00× as long beside communication as without it. Overlap "),
        ({"gemm": 0.9}, "No: compute is no slower beside communication (difference -9.90 µs of "),
        (
            {"gemm": 1.5, "elementwise": 0.2},
            "No, not in sum: matmuls run 1.50× as long beside communication as without it. All compute together is not "
            "measurably slower (difference -29.7 µs of ",
        ),
        ({"gemm": 1.002}, "No, not measurably: overlap costs your compute 198 ns of "),
    ],
)  # fmt: skip
def test_the_answer_names_what_is_slowed_and_no_other(factors: dict[str, float], expected: str) -> None:
    assert describe_verdict(beside(**factors)).startswith(expected)


def test_a_cost_below_its_noise_is_no() -> None:
    noisy = beside(jitter=0.6, gemm=1.2)
    assert noisy.overhead.low < 0 < noisy.overhead.share
    said = describe_verdict(noisy)
    assert said.startswith("No, not measurably: ")
    assert "less than its uncertainty" in said
    assert "matmuls run" not in said


def test_one_step_alone_is_no_proof_of_a_cost() -> None:
    """A single step has no spread: what it costs is "perhaps", and what it gains is no cost."""
    for factor, expected in ((1.5, "Perhaps: overlap costs 2"), (0.5, "No, not measurably in the one step seen: ")):
        found = beside(gemm=factor)
        one = replace(found.overhead, low=-math.inf, high=math.inf)
        families = tuple(replace(family, extra_low_ns=-math.inf) for family in found.families)
        assert describe_verdict(replace(found, overhead=one, families=families)).startswith(expected)


def test_kernels_that_look_like_communication_are_not_called_none() -> None:
    names = ["gemm", "my_all_reduce<float>(x)"]
    start = 10**9 + np.arange(12) * 500_000
    found = timeline.profile([timeline.build(start, start + 400_000, 1, names, np.arange(12) % 2)])
    said = describe_verdict(found)
    assert said.startswith("Unknown: no communication")
    assert said.endswith("kernels that look like communication: my_all_reduce.")


def test_the_folder_opens_offline(simulated: Profile, written: list[Path]) -> None:
    assert sorted(path.name for path in written) == [
        "groups.png", "overhead.png", "profile.html", "timeline.png", "trace.json.gz"
    ]  # fmt: skip
    for path in written:
        assert path.stat().st_size > 1000
        if path.suffix == ".png":
            assert path.read_bytes()[:6] == PNG
    page = written[0].with_name("profile.html").read_text()
    assert page.count("<svg") == page.count("</svg>") == 3
    assert "where it comes from &lt;&amp;&gt;" in page
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"|<!DOCTYPE[^>]*>', "", page)
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"|url\((?!#)[^)]*\)|https?://\S+', without_names)
    for row in simulated.patterns:
        assert row.name in page
    assert "Rank by rank" in page
    assert "{{" not in page
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)


def test_the_written_trace_says_the_same_again(simulated: Profile, written: list[Path]) -> None:
    again = timeline.profile(timeline.load(written[0].with_name("trace.json.gz")))
    shown = timeline.profile([simulated.rank.table])
    assert again.combined.samples == shown.combined.samples
    assert again.overhead == shown.overhead
    assert repr(again.patterns) == repr(shown.patterns)


@pytest.fixture
def few_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer iterations and ranks are simulated in `make test`."""
    monkeypatch.setattr(profile_command, "_ENOUGH_KERNELS", amount(20_000, 400_000))


@pytest.mark.usefixtures("pictures_unsaved", "few_kernels")
def test_the_folder_of_a_profile_says_the_same_from_python(tmp_path: Path) -> None:
    """Both have the reference trace: given to `lagom profile` or simulated by it, written beside the trace."""
    out, numbers = tmp_path / "out", tmp_path / "numbers.json"
    simulated = ("--simulate", "h200-host", "--workload", "fsdp-phi2-2b", "--out", str(out), "--json", str(numbers))
    assert run("profile", *simulated).exit_code == 0
    printed = json.loads(numbers.read_text())["overhead"]
    for found in (overlap(out), overlap(out / "trace.json.gz", reference=out / "reference.json.gz")):
        assert found.overhead.share == pytest.approx(printed["share"])
        assert found.overhead.unmatched == pytest.approx(printed["unmatched"])
    without = overlap(out / "trace.json.gz").overhead
    assert without.unmatched > printed["unmatched"], "the reference trace tells nothing here: this test shows nothing"
    again = tmp_path / "again.json"
    assert run("profile", "--trace", str(out), "--out", str(tmp_path / "b"), "--json", str(again)).exit_code == 0
    assert json.loads(again.read_text())["overhead"] == pytest.approx(printed)


@pytest.mark.usefixtures("pictures_unsaved")
def test_a_reference_trace_of_another_profile_is_not_kept(simulated: Profile, tmp_path: Path) -> None:
    with_reference = replace(simulated, reference=simulated.rank.table)
    assert tmp_path / "reference.json.gz" in profile_report.write_folder(with_reference, tmp_path, "x")
    assert tmp_path / "reference.json.gz" not in profile_report.write_folder(simulated, tmp_path, "x")
    assert not (tmp_path / "reference.json.gz").exists()


def test_equal_input_gives_equal_files(simulated: Profile, written: list[Path], tmp_path: Path) -> None:
    profile_report.write_folder(simulated, tmp_path, "where it comes from <&>")
    for path in written:
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_json_has_plain_finite_numbers(real: Profile) -> None:
    document = profile_report.to_json(real, "x")
    text = json.dumps(document, allow_nan=False)
    back = json.loads(text)
    assert back["schema"] == 3
    assert back["z_max"] == real.z_max
    assert len(back["step_samples"]) == real.steps == 7
    assert len(back["patterns"]) == len(real.patterns)
    assert len(back["groups"]) == real.rank.groups.count == 17
    assert [row["rank"] for row in back["by_rank"]] == [0]
    assert math.isclose(sum(row["overhead"] for row in back["patterns"]), back["overhead"]["ns"], rel_tol=0.05)


@pytest.mark.usefixtures("pictures_unsaved", "few_kernels")
def test_command_on_a_trace_and_on_a_simulation(tmp_path: Path) -> None:
    numbers = tmp_path / "n.json"
    ran = run("profile", "--trace", str(DUMP), "--sms", "132", "--out", str(tmp_path / "o"), "--json", str(numbers))
    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith("Yes: matmuls run")
    assert "allgather exposed" in ran.output
    assert json.loads(numbers.read_text())["overhead"]["sm"] > 0
    ran = run("profile", "--simulate", "h200-host", "--workload", "FSDP-phi2-2b", "--out", str(tmp_path / "s"))
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "s" / "profile.html").is_file()


@pytest.mark.usefixtures("pictures_unsaved", "few_kernels")
@pytest.mark.parametrize("workload", ["tp-llama3-8b", "ep-olmoe-1b-7b"])
def test_every_kind_of_workload_can_be_simulated(
    workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two layers on one rank or two in `make test`; all layers, as users have them, in `make test-full`."""
    for kind in ("domino", "expert"):
        monkeypatch.setattr(workloads, kind, partial(getattr(workloads, kind), layers=amount(2, None)))
    ran = run("profile", "--simulate", "a40-nvlink", "--workload", workload, "--out", str(tmp_path))
    assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize(
    ("arguments", "words_wanted"),
    [
        ((), "say what to profile"),
        (("--simulate", "a40-pcie", "--trace", "x.json"), "not both"),
        (("--simulate", "a40-pcie", "--reference", "x.json"), "brings its own reference trace"),
        (("--trace", str(DUMP), "--reference", "/nowhere/x.json"), "cannot be read"),
        (("--simulate", "dgx"), "choose one of: a40-nvlink"),
        (("--simulate", "a40-pcie", "--workload", "fsdp"), "write fsdp-, tp- or ep-"),
        (("--simulate", "a40-pcie", "--workload", "fsdp-gpt5"), "there is no workload"),
        (("a.json",), "put --trace before"),
        (("--trace", "nowhere.json"), "cannot be read"),
        (("--trace", "."), "is a folder"),
        (("kernels.txt.gz",), "put --trace before"),
        (("--simulate", "a40-pcie", "--json", "/nowhere/at/all.json"), "cannot be written"),
        (("--simulate", "a40-pcie", "--out", "/proc/nothing"), "cannot be made"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: tuple[str, ...], words_wanted: str, tmp_path: Path) -> None:
    out = () if "--out" in arguments else ("--out", str(tmp_path))
    ran = run("profile", *arguments, *out)
    assert isinstance(ran.exception, LagomError), ran.output
    assert words_wanted in str(ran.exception)
    assert "\n" not in str(ran.exception)


def test_what_is_read_is_never_written_over(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    kineto.write(timeline.load(DUMP)[0], trace, [], 1)
    before = trace.read_bytes()
    for arguments in (("--out", str(tmp_path)), ("--out", str(tmp_path / "o"), "--json", str(trace))):
        ran = run("profile", "--trace", str(trace), *arguments)
        assert isinstance(ran.exception, LagomError), ran.output
        assert "is read and would be written over" in str(ran.exception)
        assert trace.read_bytes() == before


def ring(compute: bool) -> Profile:
    """Eight steps of gathers and reductions of one size, as NCCL's own events tell them: without names."""
    kinds = ([2] * 6 + [2, 3] * 6) * 8  # AllGather, ReduceScatter
    rows = np.zeros(len(kinds), KERNEL_SPAN)
    rows["start_ns"] = 10**9 + 1000 * np.arange(len(kinds))
    rows["end_ns"] = rows["start_ns"] + 800
    rows["kind"], rows["source"], rows["function"], rows["bytes"], rows["call"] = 1, 2, kinds, 100, NO_CALL
    gemms = rows.copy()
    gemms["kind"], gemms["source"], gemms["stream"], gemms["name"], gemms["bytes"] = 0, 3, 7, 1, 0
    return timeline.profile([timeline.from_ring(np.concatenate([rows, gemms]) if compute else rows)])


def test_without_compute_kernels_nothing_is_said_of_what_they_cost() -> None:
    """NCCL's own events are there where CUPTI is not. They have no names, and a step is found all the same."""
    found = ring(compute=False)
    assert (found.rank.steps.count, found.rank.steps.places) == (7, 18)
    assert describe_verdict(found).startswith("Unknown: only communication was recorded")
    assert not any("hides" in line or "bound" in line for line in profile_report.more(found))
    document = profile_report.to_json(found, "ring")
    unknown = [document[name] for name in ("y", "overlap_ratio", "exposed", "idle")]
    unknown += [document["overhead"][name] for name in ("share", "low", "high", "overlapped")]
    unknown += [row[name] for row in document["by_rank"] for name in ("y", "exposed", "overhead")]
    unknown += [row[name] for row in document["groups"] for name in ("y", "overlap", "exposed", "oef")]
    unknown += [row[name] for row in document["sites"] for name in ("exposed", "hidden")]
    assert unknown == [None] * len(unknown)
    assert document["x"] == document["own_x"] > 0
    assert [row["name"] for row in document["sites"]] == ["allgather 100", "reducescatter 100"]
    used = {found.rank.table.names[name] for name in found.rank.table.name.tolist()}
    assert used == {"ncclDevKernel_AllGather", "ncclDevKernel_ReduceScatter"}
    assert describe_verdict(ring(compute=True)).startswith(("Yes", "No", "Unknown: each kernel"))


def test_what_a_rank_hides_and_exposes_adds_up_to_its_own_communication() -> None:
    """Rank 0 computes twice as long, so the others wait in communication: X over ranks is another number."""
    simulator = Simulator(workloads.fsdp("llama3_8b", layers=4), machine.A40_NVLINK)
    tables = [build_kernel_table(simulator, 5, rank=rank) for rank in range(2)]
    comm = tables[1].is_communication
    slow = replace(
        tables[1], end=np.where(comm, tables[1].start + (tables[1].end - tables[1].start) // 4, tables[1].end)
    )
    found = timeline.profile([tables[0], slow])
    own = found.rank.step_times()
    assert found.own_x == float(np.median(own.x))
    assert found.exposed <= found.own_x
    assert format_time(found.own_x) in profile_report.more(found)[0]
    assert all(site.exposed <= site.x for site in found.sites)


@pytest.mark.parametrize("arguments", [("--sms", "many"), ("--sms", "-1"), ("--iterations", "3")])
def test_wrong_options_are_refused_by_name(arguments: tuple[str, ...]) -> None:
    ran = run("profile", "--simulate", "a40-pcie", *arguments)
    assert ran.exit_code == 2
    assert arguments[0] in ran.output


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.usefixtures("pictures_unsaved")
def test_how_it_was_measured_is_said_everywhere(real: Profile, tmp_path: Path) -> None:
    lines = profile_report.how_measured(real)
    assert lines[0].startswith("Measured: timeline (")
    assert "no calls were recorded" in lines[1]
    counts = TraceCoverage("timeline", (), True, 90, 5, 95, 1, {"point-to-point: NCCL does not ask its tuner": 7}, 0.95)
    joined = replace(real, coverage=counts)
    said = " ".join(profile_report.how_measured(joined))
    assert "95.0 % of the kernels that can be tuned (90 by call number, 5 by order); 95 of 96 calls" in said
    assert "7 × point-to-point" in said
    document = profile_report.to_json(joined, "x")["coverage"]
    assert (document["tier"], document["exact"], document["tunable_share"]) == ("timeline", 90, 0.95)
    profile_report.write_folder(joined, tmp_path, "x")
    assert "7 × point-to-point" in (tmp_path / "profile.html").read_text()


@pytest.mark.usefixtures("pictures_unsaved")
def test_a_quiet_trace_raises_the_lower_bound(tmp_path: Path) -> None:
    simulator = Simulator(workloads.fsdp("llama3_8b", layers=4), machine.H200_HOST)
    files = []
    for name, assignment in (("overlapped", None), ("alone", throttled(simulator))):
        trace = build_kernel_table(simulator, 5, assignment)
        kineto.write(trace, tmp_path / f"{name}.json.gz", [], 1)
        files.append(tmp_path / f"{name}.json.gz")
    numbers = []
    for arguments in ((), ("--reference", str(files[1]))):
        out = tmp_path / f"out{len(numbers)}"
        ran = run("profile", "--trace", str(files[0]), *arguments, "--out", str(out), "--json", str(out / "n.json"))
        assert ran.exit_code == 0, ran.output
        numbers.append(json.loads((out / "n.json").read_text()))
    bare, with_reference = (document["overhead"] for document in numbers)
    assert bare["unmatched"] > 0.1 > with_reference["unmatched"]
    assert with_reference["share"] > bare["share"] + 0.01
    assert with_reference["from_reference_trace"] > 0.1
    assert "compared with the reference trace" in " ".join(numbers[1]["notes"])
