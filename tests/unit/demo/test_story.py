"""What the demo shows is what the log says: the table's numbers are medians of the log's pairs."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from lagom import journal
from lagom.demo.display import PlainDisplay, status_of
from lagom.demo.story import Story
from lagom.demo.table import show, verdict
from lagom.journal.schema import SampleRecord
from lagom.journal.tail import Tail
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


def told(*events: journal.schema.Base) -> Story:
    story = Story()
    story.read(events)
    return story


def page(story: Story) -> str:
    out = io.StringIO()
    show(story, Console(file=out, width=110))
    return out.getvalue()


def test_levels_are_medians_of_the_final_pairs() -> None:
    story = told(program(), move("trial", 1, samples=PAIRS[:1]), move("final", 2), outcome())
    levels = story.levels()
    assert levels is not None
    assert (levels[0].x, levels[0].y, levels[0].z) == (100 * MS, 900 * MS, 1000 * MS)
    assert (levels[1].x, levels[1].y, levels[1].z) == (120 * MS, 800 * MS, 920 * MS)


def test_page_names_pick_choice_times_and_cost() -> None:
    text = page(told(program(), move("final", 1), outcome()))
    for words in ("64 x allgather 416M", "ring simple nc=8", "nc=3 c=256K", "1000.0", "920.0", "-8.0 %", "+20.0 %"):
        assert words in text, text
    flat = " ".join(text.split())
    assert "Speed-up of an iteration: 1.087x stock [1.081, 1.094]" in flat
    assert "38 configs tried in 51 windows, 436 iterations; regret 2.2 iterations" in flat
    assert "Communication got 20% longer" in flat
    assert "11.1% shorter" in flat


def test_nothing_found_shows_stock_and_what_could_be_seen() -> None:
    story = told(program(), move("final", 1), outcome("stock_is_best", configs_chosen=(STOCK,), resolvable=0.004))
    text = " ".join(page(story).split())
    assert "as NCCL" in text
    assert "stock is best: it was" in text
    assert "Smallest detectable effect: 0.40 %" in text
    assert "920.0" not in text, "what was not chosen is not shown as the result"


def test_time_up_in_mid_search_says_so() -> None:
    assert "had not ended" in verdict(told(program(), move("trial", 1)))
    assert told(program()).levels() is None
    assert page(told()) != ""


def test_status_line_tells_where_the_search_is() -> None:
    assert status_of(told(), 7) == "0 ranks joined, 7 iterations: learning the program"
    line = status_of(told(program(), move("trial", 1), move("confirm", 2)), 99)
    assert line == "confirm 2: 1 configs, 99 iterations of the job, best trial +8.0 %, regret 1.5"


def test_plain_lines_come_at_most_every_few_seconds_and_only_with_news() -> None:
    out = io.StringIO()
    with PlainDisplay(Console(file=out, width=120)) as display:
        story = told(program())
        for second in range(20):
            if second == 12:
                story.read([move("trial", 1)])
            display.update(story, float(second), second)
    assert len(out.getvalue().splitlines()) == 2


def test_tail_hands_out_each_whole_line_once(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    assert tail.unread() == []
    with journal.Journal(tmp_path) as log:
        log.write(program())
        assert [event.event for event in tail.unread()] == ["program"]  # type: ignore[attr-defined]
        log.write(outcome())
    with (tmp_path / journal.LOG_NAME).open("ab") as file:
        file.write(b'{"schema": 1, "event": "note", "te')
    assert [event.event for event in tail.unread()] == ["outcome"]  # type: ignore[attr-defined]
    with (tmp_path / journal.LOG_NAME).open("ab") as file:
        file.write(b'xt": "whole now", "t": 1.0}\n')
    assert [event.event for event in tail.unread()] == ["note"]  # type: ignore[attr-defined]
    assert tail.unread() == []
