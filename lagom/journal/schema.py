# SPDX-License-Identifier: Apache-2.0
"""The events of the log. This file is the schema: ``lagom log --schema`` prints it as JSON Schema.

Every event carries ``schema`` (this format's version), ``t`` (wall clock, seconds since 1970) and ``event`` (its kind).
Times are nanoseconds and sizes bytes. A field may be added without a new version; a new meaning needs one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from lagom.records import (
    Against,
    Algorithm,
    Assignment,
    CommConfig,
    MoveVerdict,
    OutcomeVerdict,
    Protocol,
    Sample,
    Site,
)
from lagom.wire.config_refusal import ConfigRefusal

SCHEMA = 2
#: How much a note asks for.
Level = Literal["info", "notice", "warning"]
#: Why something is not tuned, as far as a reader decides by it; empty: any other reason.
#: ``config_refused``: the saved config is for another job, NCCL or GPU. ``other_program``: it fits, and the job makes
#: other calls. ``not_agreed``: no rank, or not every rank, put it in force. ``several_nodes``: the communicator spans
#: them, or its job does. ``no_rank``: none registered. ``controller_died``: the last agreed plan stays in force.
Cause = Literal["", "config_refused", "other_program", "not_agreed", "several_nodes", "no_rank", "controller_died"]


class Record(BaseModel):
    """Frozen, tolerant of fields that a later lagom adds."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, extra="ignore", ser_json_inf_nan="null")


class ConfigRecord(Record):
    """What one collective should use; null leaves that knob to NCCL."""

    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    threads: int | None = None
    chunk_bytes: int | None = None

    @classmethod
    def of(cls, config: CommConfig) -> ConfigRecord:
        """The record of a config."""
        return cls(
            algorithm=None if config.algorithm is None else config.algorithm.name.lower(),
            protocol=None if config.protocol is None else config.protocol.name.lower(),
            channels=config.channels,
            threads=config.threads,
            chunk_bytes=config.chunk_bytes,
        )

    def config(self) -> CommConfig:
        """Back to the value; ValueError on a name NCCL does not have."""
        try:
            algorithm = None if self.algorithm is None else Algorithm[self.algorithm.upper()]
            protocol = None if self.protocol is None else Protocol[self.protocol.upper()]
        except KeyError as error:
            raise ValueError(f"NCCL has no {error.args[0].lower()}") from error
        return CommConfig(algorithm, protocol, self.channels, self.threads, self.chunk_bytes)


class SiteRecord(Record):
    """A site of the program; ``stock`` is NCCL's own pick there, as far as it is known."""

    index: int
    function: str
    bytes: int
    calls_per_iteration: int = 1
    context: str = ""
    stock: ConfigRecord | None = None

    @classmethod
    def of(cls, site: Site, stock: CommConfig | None = None) -> SiteRecord:
        """The record of a site."""
        return cls(
            index=site.index,
            function=site.function.word,
            bytes=site.bytes,
            calls_per_iteration=site.calls_per_iteration,
            context=site.context,
            stock=None if stock is None else ConfigRecord.of(stock),
        )


class SampleRecord(Record):
    """One iteration as measured, nanoseconds; null where this tier of measurement cannot see it."""

    z: float
    x: float | None = None
    y: float | None = None
    x_by_site: tuple[float, ...] | None = None

    def sample(self) -> Sample:
        """Back to the value."""
        return Sample(self.z, self.x, self.y, self.x_by_site)


class Base(Record):
    """What every event carries."""

    schema_version: Literal[2] = Field(default=2, alias="schema")
    t: float = Field(default_factory=time.time)

    @property
    def kind(self) -> str:
        """The value of ``event``."""
        return str(getattr(self, "event", ""))


class JobStart(Base):
    """First line: what was asked for."""

    event: Literal["job_start"] = "job_start"
    job: str
    mode: str
    strategy: str = ""
    lagom: str = ""
    host: str = ""
    folder: str = ""
    region: str = ""
    rules: tuple[str, ...] = ()
    config: str = ""  # the saved config to be replayed
    headroom: str = ""  # channels built : those of stock
    pid: int = 0  # of the controller; 0 = there is none
    pid_namespace: int = 0  # where that is its number: an inode; 0 = not said
    simulated_clock: bool = False  # a demo: its times and its saved config are of no real job
    nodes: tuple[str, ...] = ()  # whose launchers agreed on the saved config; empty = one launcher starts all ranks


class RankJoined(Base):
    """A rank process registered. ``knobs`` are the words of enum lagom_knobs that hold there."""

    event: Literal["rank_joined"] = "rank_joined"
    process: int
    pid: int
    rank: int | None = None
    nccl: str = ""
    libnccl: str = ""
    gpu: str = ""
    tuner_api: int = 0
    profiler_api: int = 0
    knobs: tuple[str, ...] = ()
    remark: str = ""
    environment: dict[str, str] = Field(default_factory=dict)  # lagom.environment.KNOWN; of the first rank only
    simulated: bool = False  # a virtual rank


class StartSettings(Base):
    """The start settings of a saved config, and whether each rank was started with them. ``ranks``: how many were
    seen. ``reason``: which rank was not, for people; empty where ``in_force``, and ``refusal`` null then. ``speedup``:
    as the saved config has it, with its 95 % interval; null where it has none."""

    event: Literal["start_settings"] = "start_settings"
    settings: dict[str, str]
    ranks: int
    in_force: bool
    reason: str = ""
    refusal: ConfigRefusal | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None


class Communicator(Base):
    """A communicator is known. ``ranks`` counts all nodes; ``name`` is the process group's (NCCL profiler plugin)."""

    event: Literal["communicator"] = "communicator"
    communicator: int
    comm_id: str
    name: str = ""
    ranks: int
    nodes: int
    ordinal: int = 0


class Program(Base):
    """The iteration was found: ``period`` calls, each playing the part of one of ``sites``. ``channels_built``: those
    NCCL has here, as far as large ring or tree calls showed them; ``tier`` says how windows are measured."""

    event: Literal["program"] = "program"
    communicator: int
    period: int
    sites: tuple[SiteRecord, ...]
    channels_built: int | None = None
    tier: str = ""
    iteration_ns: float | None = None


#: Of a communicator's tuner, in this order.
PhaseName = Literal["joining", "learning", "pinning", "searching", "finalizing", "monitoring", "stopped"]


class Phase(Base):
    """A communicator's tuner is in another phase from now on. ``purpose``: of the window that a search measures.
    ``why``: of a tuner that has stopped, passthrough, pinned, profiled or ended."""

    event: Literal["phase"] = "phase"
    communicator: int
    phase: PhaseName
    purpose: Literal["", "baseline", "trial", "confirm", "final"] = ""
    why: Literal["", "passthrough", "pinned", "profiled", "ended"] = ""


class PlanPublished(Base):
    """A plan was offered to the ranks: in force from ``start_call`` if all agree. ``end_call`` None = open-ended."""

    event: Literal["plan_published"] = "plan_published"
    communicator: int
    epoch: int
    start_call: int
    end_call: int | None = None
    alternate_iterations: int = 0
    purpose: str = ""
    incumbent: tuple[ConfigRecord, ...] = ()
    candidate: tuple[ConfigRecord, ...] | None = None
    rules: tuple[str, ...] = ()


class PlanCommitted(Base):
    """Every rank acknowledged the same plan and history in time."""

    event: Literal["plan_committed"] = "plan_committed"
    communicator: int
    epoch: int
    start_call: int
    waited_ms: float | None = None


class PlanAborted(Base):
    """The plan was aborted; the previous plan stays in force on every rank."""

    event: Literal["plan_aborted"] = "plan_aborted"
    communicator: int
    epoch: int
    reason: str


class Move(Base):
    """One step of the search. ``samples`` are the (incumbent, candidate)
    pairs of its window: with them a whole search can be replayed from its log. ``x``, ``y``, ``z`` are the
    candidate's medians. ``verdict`` compares the candidate with ``against``; ``ratio`` is always over the incumbent.
    ``kept``: the search went on from the candidate. ``phase`` is the strategy's own word for the part of the search,
    and ``knob`` was moved ``from`` one value ``to`` another (chunk in bytes). ``reason`` is for people: nothing is
    decided by it. ``ran`` is what the window measured where that is not the candidate, but what the candidate is
    held to, known too little."""

    event: Literal["move"] = "move"
    communicator: int
    iteration: int | None = None
    number: int
    purpose: str
    incumbent: tuple[ConfigRecord, ...] | None = None
    candidate: tuple[ConfigRecord, ...]
    ran: tuple[ConfigRecord, ...] | None = None
    verdict: MoveVerdict
    against: Against = "incumbent"
    kept: bool = False
    phase: str = ""
    knob: str | None = None
    before: int | None = Field(default=None, alias="from")
    after: int | None = Field(default=None, alias="to")
    reason: str
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    h: float | None = None
    site: int | None = None
    x: float | None = None
    y: float | None = None
    z: float | None = None
    z_error: float | None = None  # one standard error of z
    pairs: int = 0
    discarded: int = 0
    stragglers: int = 0
    iterations: int = 0
    ended_early: bool = False
    resolvable: float | None = None
    lost_iterations: float = 0.0
    samples: tuple[tuple[SampleRecord, SampleRecord], ...] = ()
    arm: str = ""  # its name, in a comparison of named arms

    @classmethod
    def of(cls, move: object, *, communicator: int, iteration: int | None) -> Move:
        """The log's form of a decision of the tuning session: the fields of the same names."""
        place = {"communicator": communicator, "iteration": iteration}
        return cls(**{**_shared_fields(cls, move), **place})


class Outcome(Base):
    """How the search of one communicator ended, and on what. ``verdict``: improved, stock_is_best, cut_short or
    stopped; ``cut_short``: a limit ended the search, whatever it found. ``payback_iterations``: of the
    tuned job, until they have saved what the search lost; null where nothing is left to make up for, or nothing was
    gained. ``expected_gain``: of a search that was cut short, what its next window promised, as a fraction of Z; null
    where the strategy expects nothing in particular. ``best``: the best that a search measured which ended
    before its proof, with its speed-up over stock and the pairs of a final A/B that would have proven it; null where
    nothing was faster."""

    event: Literal["outcome"] = "outcome"
    communicator: int
    verdict: OutcomeVerdict
    reason: str
    configs_chosen: tuple[ConfigRecord, ...] = ()
    proposed: tuple[ConfigRecord, ...] | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    resolvable: float | None = None
    cut_short: bool = False
    configs: int = 0
    windows: int = 0
    iterations: int = 0
    regret_iterations: float = 0.0
    payback_iterations: float | None = None
    expected_gain: float | None = None
    best: tuple[ConfigRecord, ...] | None = None
    best_speedup: float | None = None
    best_low: float | None = None
    best_high: float | None = None
    missing_pairs: int | None = None

    @classmethod
    def of(cls, outcome: object, *, communicator: int) -> Outcome:
        """The log's form of the end of a tuning session."""
        chosen = _recorded(getattr(outcome, "assignment", None)) or ()
        return cls(**{**_shared_fields(cls, outcome), "communicator": communicator, "configs_chosen": chosen})


class Drift(Base):
    """Long after the search was over, the job is no longer as it was left: it is tuned again. ``z_before`` and
    ``z_now`` are mean iterations, ns; ``search`` counts these further searches."""

    event: Literal["drift"] = "drift"
    communicator: int
    reason: str
    z_before: float | None = None
    z_now: float | None = None
    search: int = 1
    searches_at_most: int = 1


class Passthrough(Base):
    """Something is not tuned, and why. The job continues under NCCL's choice, or under the last committed plan.
    ``refusal``: of a refused saved config, what it was made for and what is here."""

    event: Literal["standing_aside"] = "standing_aside"
    reason: str
    communicator: int | None = None
    rank: int | None = None
    cause: Cause = ""
    refusal: ConfigRefusal | None = None


class Note(Base):
    """Anything else a reader should know; a ``notice`` is printed at once while the job runs, like a warning.
    ``refusal``: of the saved config in place of which the job is tuned."""

    event: Literal["note"] = "note"
    text: str
    level: Level = "info"
    refusal: ConfigRefusal | None = None


class Dropped(Base):
    """The log reached its size limit: what was left out since, by kind of event."""

    event: Literal["dropped"] = "dropped"
    counts: dict[str, int]
    limit_bytes: int


class NotAsked(Record):
    """What NCCL ran on a communicator without asking a tuner, counted by the rank that has most of it; null where it is
    not known (without the NCCL profiler plugin). ``nothing_offered``: no algorithm was on offer (symmetric)."""

    communicator: int
    name: str = ""
    calls: int = 0  # those it did ask about
    send_recv: int | None = None
    symmetric: int | None = None
    copy_engine: int | None = None
    nothing_offered: int = 0
    captured: bool = False


class JobEnd(Base):
    """Last line."""

    event: Literal["job_end"] = "job_end"
    reason: str
    seconds: float | None = None
    calls: int | None = None
    calls_dropped: int | None = None
    config: str = ""  # the saved config that was written
    not_asked: tuple[NotAsked, ...] = ()


AnyEvent = (
    JobStart
    | RankJoined
    | StartSettings
    | Communicator
    | Program
    | Phase
    | PlanPublished
    | PlanCommitted
    | PlanAborted
    | Move
    | Outcome
    | Drift
    | Passthrough
    | Note
    | Dropped
    | JobEnd
)
Event = Annotated[AnyEvent, Field(discriminator="event")]
EVENT: TypeAdapter[Any] = TypeAdapter(Event)


def records_of(configs: Assignment | Sequence[CommConfig]) -> tuple[ConfigRecord, ...]:
    """One record a site, in site order."""
    values = configs.configs if isinstance(configs, Assignment) else configs
    return tuple(ConfigRecord.of(config) for config in values)


def _shared_fields(record: type[Base], source: object) -> dict[str, Any]:
    """The fields that a record and its origin have in common, by name."""
    return {name: _recorded(getattr(source, name)) for name in record.model_fields if hasattr(source, name)}


def _recorded(value: Any) -> Any:
    """Values of :mod:`lagom.records` as their records, inside tuples too; anything else as it is."""
    if isinstance(value, Assignment):
        return records_of(value)
    if isinstance(value, CommConfig):
        return ConfigRecord.of(value)
    if isinstance(value, Sample):
        return SampleRecord(z=value.z, x=value.x, y=value.y, x_by_site=value.x_by_site)
    return tuple(map(_recorded, value)) if isinstance(value, tuple) else value


def json_schema() -> dict[str, Any]:
    """JSON Schema of one line of the log."""
    return {"title": f"lagom decision log, schema {SCHEMA}: one line", **EVENT.json_schema(by_alias=True)}
