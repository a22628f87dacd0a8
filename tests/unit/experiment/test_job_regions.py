# SPDX-License-Identifier: Apache-2.0
"""Every region of a job: its call rate, and whether its ranks were started as wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lagom.experiment import job_regions
from lagom.experiment.job_regions import FIRST_LOOKS, SPAN_SECONDS, JobRegions, RankStart, digest
from lagom.start import VARIABLES
from lagom.wire.peek import GroupView, RegionView, Untunable
from lagom.wire.region import Region
from lagom.wire.views import CommunicatorView, ProcessView, SlotView

WANTED = {"NCCL_SOCKET_NTHREADS": "4", "NCCL_MIN_NCHANNELS": "8"}


def settings(environ: Mapping[str, str]) -> bytes:
    """As a rank writes them that was started with these variables."""
    return bytes(digest(environ.get(variable.name, "")) for variable in VARIABLES)


def start(rank: int | None, environ: Mapping[str, str]) -> RankStart:
    return RankStart(rank, 4711, 22809, "", True, settings(environ))


def view(path: str, ranks: list[int], calls: int, of: int = 2) -> RegionView:
    """A region of ranks that have made so many calls each, on a communicator of ``of`` ranks."""
    processes = tuple(
        ProcessView(rank, 100 + rank, 22809, 5, 0, 1, "", "", "", 0, 0, 0, 0, 0, start_settings=settings(WANTED))
        for rank in ranks
    )
    slots = tuple(SlotView(rank, rank, 0, rank, calls, 0, 0, 0, 0, False, 0, 0, 0, 0, p2p=0) for rank in ranks)
    comm = CommunicatorView(0, 7, of, 2, 0, "")
    group = GroupView(comm, 0, 0, 0, None, slots, Untunable())
    return RegionView(Path(path), job_key="job", processes=processes, groups=(group,))


class Regions(JobRegions):
    """Whose regions are those of the test, at its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        super().__init__({"LAGOM_JOB_ID": "bench", "LAGOM_SHM_DIR": str(tmp_path)})
        self.now, self.seen, self.count = 1000.0, [], 0
        monkeypatch.setattr(job_regions.time, "monotonic", lambda: self.now)

    seen: list[RegionView]

    def _views(self) -> Iterator[RegionView]:
        self.count += 1
        return iter(self.seen)

    def watch(self, seconds: float, ranks: list[int], of: int = 2, rate: float = 50.0) -> None:
        """As the runner does, every tenth of a second."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.seen = [view("a", ranks, int(self.now * rate), of)]
            self.look()


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Regions:
    return Regions(monkeypatch, tmp_path)


@pytest.mark.parametrize(("ranks", "of"), [([0, 1], 2), ([0], 2), ([0, 1], 16)])
def test_calls_are_counted_over_whole_spans_whether_or_not_every_rank_is_here(
    regions: Regions, ranks: list[int], of: int
) -> None:
    """Calls come in bursts: spans of a fifth of a second would show those, and end a process of many nodes at once."""
    regions.watch(30.0, ranks, of)
    samples = regions.samples()
    assert 30 / SPAN_SECONDS - 2 <= len(samples) <= 30 / SPAN_SECONDS
    assert all(value == pytest.approx(1 / 50, rel=0.05) for _, value in samples)


def test_ranks_are_looked_for_often_until_all_were_seen_but_not_for_ever(regions: Regions) -> None:
    regions.watch(1.0, [0])
    assert regions.count >= 4
    assert not regions.saw_all_ranks
    regions.watch(0.5, [0, 1])
    assert regions.saw_all_ranks
    assert {one.name for one in regions.starts.values()} == {"rank 0", "rank 1"}
    before = regions.count
    regions.watch(20.0, [0, 1])
    assert regions.count - before <= 20 / SPAN_SECONDS + 1


def test_ranks_of_other_machines_are_not_looked_for_for_ever(regions: Regions) -> None:
    regions.watch(100.0, [0, 1], of=16)
    assert regions.count <= FIRST_LOOKS + 100 / SPAN_SECONDS


def test_a_rank_that_was_not_started_as_wanted_is_named(regions: Regions) -> None:
    assert regions.unlike(WANTED) == "", "nobody was seen"
    place = regions.region
    regions.starts = {(place, 0): start(0, WANTED), (place, 1): start(1, WANTED)}
    assert regions.unlike(WANTED) == ""
    regions.starts[place, 1] = start(1, {"NCCL_MIN_NCHANNELS": "8"})
    assert regions.unlike(WANTED) == "rank 1 was not started with NCCL_SOCKET_NTHREADS=4: set it for every rank."
    regions.starts[place, 1] = start(None, {**WANTED, "NCCL_SOCKET_NTHREADS": "2"})
    assert regions.unlike(WANTED).startswith("process 4711 was not started with NCCL_SOCKET_NTHREADS=4")


def test_ranks_must_be_alike_in_what_nobody_asked_for_where_nccl_needs_that(regions: Regions) -> None:
    place = regions.region
    regions.starts = {(place, 0): start(0, {"NCCL_ALGO": "Ring"}), (place, 1): start(1, {"NCCL_ALGO": "Tree"})}
    assert regions.unlike({}) == "rank 1 was started with another NCCL_ALGO than rank 0: make them the same."
    threads = {(place, rank): start(rank, {"NCCL_SOCKET_NTHREADS": str(rank)}) for rank in (1, 2)}
    regions.starts = threads
    assert regions.unlike({}) == "", "each rank may have as many helper threads as it likes"


def test_a_digest_tells_values_apart_and_an_empty_one_from_none() -> None:
    assert digest("") == 0, "not set"
    values = {value for variable in VARIABLES for value in variable.values}
    assert all(0 < digest(value) < 256 for value in values)


@pytest.mark.parametrize(("is_looked_at", "made"), [(True, False), (False, None)])
def test_the_region_of_another_job_is_not_taken_for_this_one_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_looked_at: bool, made: bool | None
) -> None:
    """Where no look fell into its time, nobody can tell whose it was."""
    monkeypatch.setenv("LAGOM_SHM_DIR", str(tmp_path))
    with JobRegions({"LAGOM_JOB_ID": "bench", "LAGOM_SHM_DIR": str(tmp_path)}, is_new=True) as regions:
        with Region.create("lagom.other uid=0 boot=1 host=-"):
            if is_looked_at:
                regions.look()
        assert regions.was_made() is made
