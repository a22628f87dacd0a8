# SPDX-License-Identifier: Apache-2.0
"""What the demo shows is what the log says: the table's numbers are medians of the log's pairs."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from lagom import journal
from lagom.demo.result import last_page, levels, verdict
from lagom.demo.run_demo import INTERRUPTED, PINNED_ITERATIONS, End, run_demo
from lagom.errors import LagomError, UsageError
from lagom.journal import RunState
from lagom.journal.schema import SampleRecord
from lagom.records import Algorithm, CommConfig, Function, Protocol, Site

STOCK = journal.ConfigRecord()
CHOSEN = journal.ConfigRecord.of(CommConfig(channels=3, chunk_bytes=256 << 10))
PICK = CommConfig(Algorithm.RING, Protocol.SIMPLE, 8)
MS = 1_000_000.0


def sample(x: float, y: float, z: float) -> SampleRecord:
    return SampleRecord(z=z * MS, x=x * MS, y=y * MS, x_by_site=(x * MS,))


PAIRS = (
    (sample(100, 900, 1000), sample(120, 800, 920)),
    (sample(101, 903, 1003), sample(121, 802, 922)),
    (sample(99, 897, 990), sample(119, 799, 915)),
)


def program() -> journal.Program:
    site = journal.SiteRecord.of(Site(0, Function.ALL_GATHER, 416 << 20, 64), PICK)
    return journal.Program(communicator=0, period=98, sites=(site,))


def move(purpose: str, number: int, **fields: object) -> journal.Move:
    values: dict[str, object] = {
        "communicator": 0,
        "phase": "tuning",
        "number": number,
        "purpose": purpose,
        "candidate": (CHOSEN,),
        "verdict": "better",
        "reason": "",
        "samples": PAIRS,
        "ratio": 0.92,
        "lost_iterations": 1.5,
    }
    return journal.Move(**{**values, **fields})  # type: ignore[arg-type]


def outcome(word: str = "improved", **fields: object) -> journal.Outcome:
    values: dict[str, object] = {
        "communicator": 0,
        "verdict": word,
        "reason": "it was",
        "configs_chosen": (CHOSEN,),
        "speedup": 1.0873,
        "speedup_low": 1.081,
        "speedup_high": 1.094,
        "configs": 38,
        "windows": 51,
        "iterations": 436,
        "regret_iterations": 2.25,
    }
    return journal.Outcome(**{**values, **fields})  # type: ignore[arg-type]


def told(*events: journal.schema.Base) -> RunState:
    return RunState(events)


def page(run: RunState, width: int = 110) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(last_page(run))
    return out.getvalue()


def test_levels_are_medians_of_the_final_pairs() -> None:
    story = told(program(), move("trial", 1, samples=PAIRS[:1]), move("final", 2), outcome())
    found = levels(story)
    assert found is not None
    assert (found[0].x, found[0].y, found[0].z) == (100 * MS, 900 * MS, 1000 * MS)
    assert (found[1].x, found[1].y, found[1].z) == (120 * MS, 800 * MS, 920 * MS)


def test_page_names_pick_choice_times_and_cost() -> None:
    text = page(told(program(), move("final", 1), outcome()))
    for words in (
        "64 x allgather 416M",
        "ring simple nc=8",
        "nc=3 chunk=256K",
        "1.00 s",
        "920 ms",
        "-8.0 %",
        "+20.0 %",
    ):
        assert words in text, text
    flat = " ".join(text.split())
    assert "Speed-up of an iteration: 1.087x plain NCCL [1.081, 1.094]" in flat
    assert "38 configs tried in 51 windows, 436 iterations; regret 2.2 iterations" in flat
    assert "Communication got 20% longer" in flat
    assert "11.1% shorter" in flat


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_cell_of_the_table_is_cut(width: int) -> None:
    text = page(told(program(), move("final", 1), outcome()), width)
    assert "…" not in text
    assert "nc=3" in text
    assert "+20.0 %" in text
    assert ("1.00 s" in text) == (width >= 80)
    assert all(len(line) <= width for line in text.splitlines())


def test_nothing_found_shows_stock_and_what_could_be_seen() -> None:
    story = told(program(), move("final", 1), outcome("stock_is_best", configs_chosen=(STOCK,), resolvable=0.004))
    text = " ".join(page(story).split())
    assert "as NCCL" in text
    assert "stock is best: it was" in text
    assert "Smallest detectable effect: 0.40 %" in text
    assert "920 ms" not in text, "what was not chosen is not shown as the result"


def test_time_up_in_mid_search_says_so() -> None:
    assert "had not ended" in verdict(told(program(), move("trial", 1)))
    assert levels(told(program())) is None
    assert page(told()) != ""


def test_an_interrupted_demo_says_where_its_log_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("lagom.demo.run_demo._play", interrupt)
    out = io.StringIO()
    assert run_demo(folder=tmp_path, console=Console(file=out, width=200)) == INTERRUPTED
    assert f"lagom log {tmp_path}" in out.getvalue()


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_named_before_the_demo_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lagom.demo.run_demo.write_whole", full)
    monkeypatch.setattr("lagom.demo.run_demo._play", lambda *_: pytest.fail("it played for nothing"))
    with pytest.raises(UsageError, match=r"/log cannot be written to .No space left on device.; name another folder"):
        run_demo(folder=tmp_path / "log", console=Console(file=io.StringIO()))


def test_a_disk_that_is_full_in_the_middle_of_the_demo_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log lost is not known, and a table of the rest would be one of another search."""
    monkeypatch.setattr("lagom.demo.run_demo._play", lambda *_: [])
    out = io.StringIO()
    with pytest.raises(LagomError, match=r"/log/decisions.jsonl is incomplete: its end could not be written"):
        run_demo(folder=tmp_path / "log", console=Console(file=out))
    assert "configs tried" not in out.getvalue()


def test_a_demo_pinned_from_its_start_ends_once_its_rules_were_in_force_for_a_while() -> None:
    """No search begins, so that none says that it is over."""
    put = journal.PlanPublished(communicator=0, epoch=1, start_call=9, purpose="pin", rules=("any: nc=2",))
    run, end = told(journal.Communicator(communicator=0, comm_id="7", ranks=8, nodes=1), put), End()
    assert not end.is_reached(run.comm(0), 10 * PINNED_ITERATIONS), "offered, and not agreed to yet"
    run.apply(journal.PlanCommitted(communicator=0, epoch=1, start_call=9))
    assert not end.is_reached(run.comm(0), 1000)
    assert not end.is_reached(run.comm(0), 1000 + PINNED_ITERATIONS - 1)
    assert end.is_reached(run.comm(0), 1000 + PINNED_ITERATIONS)
    assert page(run).strip() == "Pinned by hand, not compared with plain NCCL: any: nc=2."
    run.apply(put.model_copy(update={"epoch": 2, "rules": ()}))
    run.apply(journal.PlanCommitted(communicator=0, epoch=2, start_call=99))
    assert not end.is_reached(run.comm(0), 5000), "withdrawn by `lagom set --clear`: the search begins"
    run.apply(outcome())
    assert end.is_reached(run.comm(0), 5001)
