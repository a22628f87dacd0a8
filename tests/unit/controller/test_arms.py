# SPDX-License-Identifier: Apache-2.0
"""From what `lagom bench` asks for to assignments of the sites that were found."""

from __future__ import annotations

from pathlib import Path

import pytest

from lagom.controller.arms import ArmsFile, ArmWish, BadArms, SiteWish, read_arms, resolve
from lagom.records import CommConfig, Function, Knobs, Problem, Site
from lagom.search.comparison import Arm

GATHER, SCATTER = Function.ALL_GATHER, Function.REDUCE_SCATTER
SITES = (Site(0, GATHER, 400 << 20, 2), Site(1, SCATTER, 400 << 20, 1))
POSITIONS = (0, 0, 2, 1)  # site 2 is too light to be tuned


def problem(ceiling: int = 4, *, chunk: bool = True, threads: bool = False, own: int | None = 4) -> Problem:
    knobs = Knobs(channels=True, algorithm=True, chunk=chunk, threads=threads)
    return Problem(SITES, (CommConfig(channels=own),) * 2, ceiling, knobs)


def only(wish: ArmWish, where: Problem | None = None) -> tuple[list[Arm], list[str]]:
    arms, remarks = resolve([wish], where or problem(), POSITIONS)
    assert arms[0].name == "stock"
    assert arms[0].assignment.is_stock
    return arms[1:], remarks


def test_a_cap_only_lowers_and_one_that_lowers_nothing_is_stock_and_said() -> None:
    (cap,), remarks = only(ArmWish(name="static=2", cap=2))
    assert cap.assignment.configs == (CommConfig(channels=2),) * 2
    assert remarks == []
    assert only(ArmWish(name="static=8", cap=8)) == (
        [],
        ["arm static=8 is left out: here it is the same as stock"],
    )


def test_a_sweep_is_every_cap_below_what_nccl_takes() -> None:
    arms, _ = only(ArmWish(name="static", sweep=True), problem(ceiling=24, own=24))
    assert [arm.name for arm in arms] == [f"static={cap}" for cap in (16, 12, 8, 6, 4, 3, 2, 1)]
    assert {arm.sweep for arm in arms} == {"static"}, "only the best of them is wanted"
    assert [arm.sweep for arm in only(ArmWish(name="static=2", cap=2))[0]] == [""], "asked for by name"


@pytest.mark.parametrize("named_first", [False, True])
def test_a_cap_asked_for_by_name_is_not_one_of_many(named_first: bool) -> None:
    """It is measured to the end, whoever asked first."""
    wishes = [ArmWish(name="static", sweep=True), ArmWish(name="static=2", cap=2), ArmWish(name="liger", cap=3)]
    arms, remarks = resolve(wishes[::-1] if named_first else wishes, problem(), POSITIONS)
    assert sorted(arm.name for arm in arms) == sorted({arm.name for arm in arms}), "no name twice"
    by_name = {arm.name: arm.sweep for arm in arms}
    assert by_name["static=2"] == by_name["static=3" if not named_first else "liger"] == ""
    assert by_name["static=1"] == "static"
    assert remarks == ([] if named_first else ["arm liger is left out: here it is the same as static=3"])


def test_caps_that_come_to_the_same_are_measured_once_and_what_a_search_found_always() -> None:
    wishes = [
        ArmWish(name="static", sweep=True),
        ArmWish(name="liger", cap=3),
        ArmWish(
            name="lagom", sites=tuple(SiteWish(function=s.function.word, bytes=s.bytes, channels=3) for s in SITES)
        ),
    ]
    arms, remarks = resolve(wishes, problem(), POSITIONS)
    assert [arm.name for arm in arms] == ["stock", "static=3", "static=2", "static=1", "lagom"]
    assert remarks == ["arm liger is left out: here it is the same as static=3"]


def test_a_grid_holds_every_cap_with_every_chunk_but_stock() -> None:
    arms, _ = only(ArmWish(name="grid", grid=True))
    assert len({arm.assignment for arm in arms}) == len(arms) == 4 * 7 - 1  # caps 3, 2, 1 and none; six chunks and none
    without, _ = only(ArmWish(name="grid", grid=True), problem(chunk=False))
    assert len(without) == 3
    many, _ = only(ArmWish(name="grid", grid=True), problem(ceiling=64, own=64))
    assert len(many) <= 48


def test_knobs_that_are_not_there_are_left_out_and_said() -> None:
    (arm,), remarks = only(ArmWish(name="dhelix", cap=2, threads=256))
    assert arm.assignment[0] == CommConfig(channels=2)
    assert any("dhelix" in text and "nt=" in text for text in remarks)
    (arm,), remarks = only(ArmWish(name="dhelix", cap=2, threads=256), problem(threads=True))
    assert arm.assignment[0] == CommConfig(channels=2, threads=256)
    assert remarks == []


def test_rules_and_sites_of_a_search_meet_the_sites_they_fit() -> None:
    (arm,), _ = only(ArmWish(name="set", rules="allgather:>=1M:nc=2,chunk=256K"))
    assert arm.assignment.configs == (CommConfig(channels=2, chunk_bytes=256 << 10), CommConfig())
    wishes = (
        SiteWish(function="reducescatter", bytes=400 << 20, channels=3),
        SiteWish(function="allgather", bytes=1, channels=1),
    )
    (arm,), _ = only(ArmWish(name="lagom", sites=wishes))
    assert arm.assignment.configs == (CommConfig(), CommConfig(channels=3))


def config(folder: Path, program: str, second: str = "") -> Path:
    path = folder / "p.lagom"
    path.write_text(
        "lagom-config 1\ncommunicator ranks=2 nodes=1 ordinal=0\n"
        f"site 0 allgather {400 << 20} nc=2\nsite 1 reducescatter {400 << 20} nc=3\nsite 2 allreduce 100000\n{second}"
        f"program {program}\nend\n"
    )
    return path


def test_a_saved_config_fits_where_its_program_is_the_same_cycle(tmp_path: Path) -> None:
    wish = ArmWish(name="replay", config=config(tmp_path, "1 0 0 2"))  # begins elsewhere
    (arm,), _ = only(wish)
    assert arm.assignment.configs == (CommConfig(channels=2), CommConfig(channels=3))
    other, remarks = only(ArmWish(name="replay", config=config(tmp_path, "0 0 1")))
    assert other == []
    assert "left out" in remarks[0]


def test_a_saved_config_that_tells_more_apart_is_refused(tmp_path: Path) -> None:
    path = config(tmp_path, "0 3 2 1", f"site 3 allgather {400 << 20} nc=1\n")
    arms, remarks = only(ArmWish(name="replay", config=path))
    assert arms == []
    assert "distinguishes calls that are one site" in remarks[0]


def test_the_file_is_checked_before_the_job_starts(tmp_path: Path) -> None:
    path = tmp_path / "arms.json"
    path.write_text(ArmsFile(arms=(ArmWish(name="stock"),)).model_dump_json())
    assert read_arms(path).arms[0].name == "stock"
    path.write_text('{"arms": [{"name": "x", "nonsense": 1}]}')
    with pytest.raises(BadArms):
        read_arms(path)
    with pytest.raises(BadArms):
        read_arms(tmp_path / "none")
