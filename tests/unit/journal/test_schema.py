# SPDX-License-Identifier: Apache-2.0
"""The schema holds what the search decides, round trips, and does not change by accident."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from lagom import journal
from lagom.journal import ConfigRecord, SiteRecord
from lagom.journal.reader import parse
from lagom.journal.schema import EVENT
from lagom.records import Algorithm, Assignment, CommConfig, Function, Protocol, Sample, Site
from lagom.search.moves import SearchMove, SearchOutcome

CONFIG = CommConfig(Algorithm.RING, Protocol.SIMPLE, 3, 256, 256 << 10)
MOVE = SearchMove(
    7, "trial", Assignment((CONFIG,)), "better", "X fell", 0.957, 0.949, 0.966, 0.12, 0, 45e6, 60e6, 68.6e6, 8
)


def test_a_config_comes_back_as_it_was() -> None:
    assert ConfigRecord.of(CONFIG).config() == CONFIG
    assert ConfigRecord().config() == CommConfig()


def test_a_move_keeps_every_field_of_the_session() -> None:
    event = journal.Move.of(MOVE, communicator=2, iteration=1240)
    for name in SearchMove.__dataclass_fields__:
        if name not in ("candidate", "incumbent", "samples"):
            assert getattr(event, name) == getattr(MOVE, name), name
    assert event.candidate[0].config() == CONFIG
    assert parse(event.model_dump_json(by_alias=True)) == event


def test_the_pairs_of_a_window_come_back_as_they_were() -> None:
    pair = (Sample(2.0, 1.0, 1.5, (1.0,)), Sample(1.9))
    source = SimpleNamespace(**{n: getattr(MOVE, n) for n in SearchMove.__dataclass_fields__} | {"samples": (pair,)})
    event = journal.Move.of(source, communicator=0, iteration=0)  # type: ignore[arg-type]
    assert [tuple(record.sample() for record in pair) for pair in event.samples] == [pair]


def test_an_outcome_keeps_every_figure() -> None:
    outcome = SearchOutcome(Assignment((CONFIG,)), "improved", "confirmed", 1.25, 1.2, 1.3, 0.01, 12, 14, 480, 3.5)
    event = journal.Outcome.of(outcome, communicator=0)
    for name in SearchOutcome.__dataclass_fields__:
        if name not in ("assignment", "proposed", "moves"):
            assert getattr(event, name) == getattr(outcome, name), name
    assert parse(event.model_dump_json(by_alias=True)) == event


def test_a_site_keeps_its_words() -> None:
    record = SiteRecord.of(Site(3, Function.ALL_GATHER, 436207616, 32, "hidden"), CONFIG)
    assert (record.index, record.function, record.context) == (3, "allgather", "hidden")


#: Adding a field here is fine. Removing or renaming one needs a new schema version and a line in the changelog.
FROZEN = {
    "job_start": {"schema", "t", "event", "job", "mode", "strategy", "lagom", "host", "folder", "region", "rules"},
    "rank_joined": {
        *("schema", "t", "event", "process", "pid", "rank", "nccl", "libnccl", "gpu"),
        *("tuner_api", "profiler_api", "knobs", "remark"),
    },
    "communicator": {"schema", "t", "event", "communicator", "comm_id", "name", "ranks", "nodes", "ordinal"},
    "program": {"schema", "t", "event", "communicator", "period", "sites"},
    "phase": {"schema", "t", "event", "communicator", "phase", "purpose", "why"},
    "plan_published": {
        *("schema", "t", "event", "communicator", "epoch", "start_call", "end_call", "alternate_iterations"),
        *("purpose", "incumbent", "candidate", "rules"),
    },
    "plan_committed": {"schema", "t", "event", "communicator", "epoch", "start_call", "waited_ms"},
    "plan_aborted": {"schema", "t", "event", "communicator", "epoch", "reason"},
    "move": {
        *("schema", "t", "event", "communicator", "phase", "iteration", "number", "purpose", "candidate", "verdict"),
        *("reason", "ratio", "ratio_low", "ratio_high", "h", "site", "x", "y", "z", "pairs", "discarded"),
        *("resolvable", "lost_iterations", "incumbent", "ended_early", "samples", "stragglers", "iterations"),
        *("ran", "z_error", "against", "kept", "knob", "from", "to"),
    },
    "outcome": {
        *("schema", "t", "event", "communicator", "verdict", "reason", "configs_chosen", "speedup", "speedup_low"),
        *("speedup_high", "resolvable", "configs", "windows", "iterations", "regret_iterations", "proposed"),
    },
    "drift": {
        *("schema", "t", "event", "communicator", "reason", "z_before", "z_now", "search", "searches_at_most"),
    },
    "start_settings": {"in_force", "ranks", "reason", "settings", "speedup", "speedup_high", "speedup_low"},
    "standing_aside": {"schema", "t", "event", "reason", "communicator", "rank", "cause"},
    "note": {"schema", "t", "event", "text", "level"},
    "dropped": {"schema", "t", "event", "counts", "limit_bytes"},
    "job_end": {"schema", "t", "event", "reason", "seconds", "calls", "calls_dropped", "config"},
}


def test_nothing_of_schema_2_was_taken_away() -> None:
    definitions = EVENT.json_schema(by_alias=True)["$defs"]
    have = {
        d["properties"]["event"]["const"]: set(d["properties"])
        for d in definitions.values()
        if "event" in d["properties"]
    }
    for kind, fields in FROZEN.items():
        assert fields <= have[kind], kind
    assert set(have) == set(FROZEN)
    assert journal.json_schema()["title"].startswith("lagom decision log, schema 2")


def test_the_readme_names_every_event() -> None:
    readme = (Path(journal.__file__).parent / "README.md").read_text()
    assert all(f"`{kind}`" in readme for kind in FROZEN)
