# SPDX-License-Identifier: Apache-2.0
"""Any bytes as a log: what is whole is read, the rest is counted, and only another schema is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lagom.errors import JournalError
from lagom.journal import Note, read
from lagom.journal.reader import parse
from lagom.journal.schema import SCHEMA, Base
from lagom.journal.text import Formatter

quick = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
KINDS = ["note", "job_start", "job_end", "move", "program", "window", "outcome", "drift", "dropped", "plan"]
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)


def fields_of_events() -> list[str]:
    """Every field that some event has."""
    found: set[str] = set()
    pending = [Base]
    while pending:
        kind = pending.pop()
        found |= set(kind.model_fields)
        pending += kind.__subclasses__()
    return sorted(found)


events = st.builds(
    lambda kind, fields: {"schema": SCHEMA, "t": 0, "event": kind, **fields},
    st.one_of(st.sampled_from(KINDS), values),
    st.dictionaries(st.sampled_from(fields_of_events()), values, max_size=8),
)


@quick
@given(st.one_of(st.text(), values.map(lambda value: json.dumps(value)), events.map(lambda event: json.dumps(event))))
@example("[" * 100_000)
@example('{"event": ' * 20_000)
@example("9" * 10_000)
@example('{"schema": 2, "t": 1e999, "event": ["note"], "text": "\\ud800"}')
def test_a_line_is_an_event_or_it_is_not(line: str) -> None:
    with suppress(JournalError):  # of another schema: the one thing that is refused rather than left out
        event = parse(line, 1)
        assert event is None or isinstance(event, Base)


@quick
@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 400))
def test_what_is_whole_is_read_wherever_the_log_is_cut(tmp_path: Path, garbage: list[bytes], cut: int) -> None:
    log = tmp_path / "decisions.jsonl"
    good = Note(text="good").model_dump_json(by_alias=True).encode()
    whole = b"\n".join([good, *(line.replace(b"\n", b"") for line in garbage), good, good])
    log.write_bytes(whole + b"\n" + good[: cut % (len(good) + 1)])
    seen = list(read(log))
    assert len(seen) >= 3


def kinds_of_events() -> list[type[Base]]:
    """Every event there is."""
    return sorted((kind for kind in Base.__subclasses__() if not kind.__subclasses__()), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", kinds_of_events())
@settings(max_examples=20)
@given(st.data())
def test_any_event_becomes_lines_that_a_terminal_may_be_given(kind: type[Base], data: st.DataObject) -> None:
    """Names of communicators and kernels are the job's: no escape sequence of theirs reaches whoever reads the log."""
    event = data.draw(st.builds(kind, t=st.floats(allow_nan=False, allow_infinity=False)))
    read_back = parse(event.model_dump_json(by_alias=True))
    assert read_back is not None
    line = Formatter(everything=True).line(read_back)
    assert line is not None
    assert all(part.isprintable() for part in line.split("\n"))
