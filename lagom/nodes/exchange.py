# SPDX-License-Identifier: Apache-2.0
"""What launchers of several nodes exchange: small records under fixed keys, most of them written once.

Everything that is read is hostile input: it may come from another user's file or a foreign server. It is at most 64 kB,
JSON, and a record of known fields; start settings are those of ``lagom/start``'s table. No record holds a path or a
command that anything is done with.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from lagom.environment import check_start_settings
from lagom.errors import LagomError
from lagom.nodes.worker import DEADLINE, Given, TookTooLong, Worker

MOST_BYTES = 1 << 16
MOST_LINE = 400
MOST_NODES = 4096
KEY = re.compile(r"[a-z0-9]{1,40}(/[a-z0-9]{1,40}){0,4}")


class ExchangeError(LagomError):
    """The folder or store does not answer, or cannot be used: one sentence."""


class NoAnswer(ExchangeError):
    """Nothing has come back within the deadline; it may later."""


class UnreadableRecord(ExchangeError):
    """A key holds what no lagom has written."""


def _is_printable(text: str) -> str:
    """It is shown on a terminal."""
    if not text.isprintable():
        raise ValueError("it has characters that cannot be printed")
    return text


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Line = Annotated[str, Field(max_length=MOST_LINE), AfterValidator(_is_printable)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{0,64}$")]
Seat = Annotated[int, Field(ge=0, lt=MOST_NODES)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Settings = Annotated[dict[str, str], AfterValidator(check_start_settings)]


class Exchanged(BaseModel):
    """Base of everything that is exchanged: its fields and no others."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class NodeFacts(Exchanged):
    """What has to be the same on all nodes. ``command``: digest of the words that stay; ``config``: digest of the saved
    config that a start would use; ``nccl``: version code, 0 = not known; ``variables``: digests of values, by name."""

    command: Digest = ""
    config: Digest = ""
    lagom: Line = ""
    plugin: Digest = ""
    nccl: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    gpu: Line = ""
    variables: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")], Digest] = Field(
        default_factory=dict, max_length=400
    )


class Place(Exchanged):
    """Who has a seat. ``token``: of one launcher, random; ``machine``: digest of the machine and its boot, empty = not
    known; ``count``: how many nodes it waits for."""

    token: Digest
    node: Name
    facts: NodeFacts
    machine: Digest = ""
    count: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1


class Begin(Exchanged):
    """How an enrolment ended, once for all nodes: all agree, or none of them goes on with it. ``twice``: two launchers
    of one node; ``closed``: a launcher has left or is dead, and the others enrol anew."""

    agreed: bool
    why: Literal["agreed", "late", "differs", "twice", "closed"]


class Beat(Exchanged):
    """A launcher's counter of life."""

    count: Annotated[int, Field(ge=0, lt=1 << 53)]


class Go(Exchanged):
    """A round: ``number`` is that of the process (``{trial}``), ``limit`` its seconds, 0 = none."""

    settings: Settings
    number: Annotated[int, Field(ge=0, lt=1 << 31)]
    limit: Seconds = 0.0


class Stop(Exchanged):
    """Who ended a round first, and why: it had ``enough`` samples, its process came to its ``exit`` or its ``limit``,
    its user has ``interrupted`` it, a node is ``gone``."""

    by: Seat
    why: Literal["enough", "exit", "limit", "interrupted", "gone"]


class Done(Exchanged):
    """What a node's process gave. ``ended``: by ``itself``, by ``us`` or by its ``limit``; ``value`` and ``samples`` in
    ``unit`` (None: no number was read); ``ranks``: of the largest communicator, ``ranks_seen``: those on this node
    whose settings were compared; ``unlike``: a sentence about ranks with other settings."""

    exit: Annotated[int, Field(ge=-256, le=256)]
    ended: Literal["itself", "us", "limit"]
    seconds: Seconds = 0.0
    value: Number | None = None
    samples: list[Number] = Field(default_factory=list, max_length=2000)
    unit: Annotated[Line, Field(max_length=40)] | None = None
    ranks: Annotated[int, Field(ge=0, lt=1 << 24)] = 0
    ranks_seen: Annotated[int, Field(ge=0, lt=1 << 24)] = 0
    unlike: Line = ""
    reason: Line = ""


class FoundStart(Exchanged):
    """Start settings that are faster, and for which jobs: from this every node writes the same saved config. The fields
    of :class:`~lagom.config_file.Fingerprint` (``nccl`` is its version code), and the proof: ``speedup`` with its
    interval, from so many ``processes`` of plain NCCL and with the settings, by ``measure``; ``text``: a sentence."""

    settings: Settings
    nccl: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    ranks: Annotated[int, Field(ge=0, lt=1 << 24)] = 0
    nodes: Annotated[int, Field(ge=0, lt=1 << 24)] = 0
    gpu: Line = ""
    p2p: bool | None = None
    simulated: bool = False
    speedup: Number
    low: Number
    high: Number
    processes: Annotated[list[Annotated[int, Field(ge=0, lt=1 << 20)]], Field(min_length=2, max_length=2)]
    measure: Line
    text: Line


class SessionEnd(Exchanged):
    """How a session ended, once for all nodes: ``finished`` with a ``verdict`` and what was found, ``interrupted``
    on a node, ``failed`` there with the sentence ``text``, or because a node is ``gone``: ``by`` says so of ``of``."""

    kind: Literal["finished", "interrupted", "failed", "gone"]
    by: Seat
    of: Seat
    verdict: Annotated[Line, Field(max_length=40)] = ""
    found: FoundStart | None = None
    text: Line = ""


class Mark(Exchanged):
    """That a node has come so far."""

    token: Digest


Record = TypeVar("Record", bound=Exchanged)


class Exchange(ABC):
    """Where records are kept for all nodes. Every method raises :class:`ExchangeError`, and none takes longer than
    ``deadline`` seconds: what may hang is done in a thread of the exchange. ``name``: for the user, the folder or the
    address."""

    #: Whether this node may have seat 0: of a store that ends with the launcher that hosts it, only that one.
    may_coordinate: bool = True
    #: Whether others cannot reach what this launcher holds once it has ended.
    is_host: bool = False
    #: Seconds that were spent until another launcher hosted it, and that are given to that at most.
    waited: float = 0.0
    patience: float = math.inf

    def __init__(self, name: str, deadline: float = DEADLINE) -> None:
        self.name, self._deadline, self._worker = name, deadline, Worker()
        self.space = ""  # before all keys, of one purpose

    def put_once(self, key: str, record: Record) -> Record:
        """Write it unless something is there already; returns what is in force for all nodes from now on."""
        place, data = self._place(key), _to_bytes(record)
        return self._read(place, type(record), self._in_time(lambda: self._put_once(place, data)))

    def put(self, key: str, record: Exchanged) -> None:
        """Write it, or replace it. Of one key by one node."""
        place, data = self._place(key), _to_bytes(record)
        self._in_time(lambda: self._put(place, data))

    def get(self, key: str, kind: type[Record]) -> Record | None:
        """What is there; None if nothing is yet."""
        place = self._place(key)
        data = self._in_time(lambda: self._get(place))
        return None if data is None else self._read(place, kind, data)

    def close(self) -> None:
        """End what this node has open."""
        self._worker.close()

    def _place(self, key: str) -> str:
        if not KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no key")
        return f"{self.space}/{key}" if self.space else key

    def _in_time(self, what: Callable[[], Given], deadline: float = 0.0) -> Given:
        """Do it in the thread, within ``deadline`` seconds; 0 = that of all that is asked. Raises
        :class:`NoAnswer`."""
        limit = deadline or self._deadline
        try:
            return self._worker.do(what, limit)
        except TookTooLong:
            self._leave_behind()
            raise NoAnswer(self._gone(f"no answer within {limit:g} s")) from None

    def _leave_behind(self) -> None:  # noqa: B027
        """Let go of what a thread that hangs is using."""

    @abstractmethod
    def _gone(self, why: str) -> str:
        """A sentence that it cannot be used."""

    def _read(self, key: str, kind: type[Record], data: bytes) -> Record:
        try:
            if len(data) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes")
            return kind.model_validate_json(data)
        except (ValidationError, ValueError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else None
            what = first["type"] if first else "too large"
            raise UnreadableRecord(
                f"{key} of {self.name} is no record of this lagom ({what}); use an empty folder with --out, or another "
                "port, and the same release of lagom on all nodes."
            ) from None

    @abstractmethod
    def _put_once(self, key: str, data: bytes) -> bytes: ...

    @abstractmethod
    def _put(self, key: str, data: bytes) -> None: ...

    @abstractmethod
    def _get(self, key: str) -> bytes | None: ...


def to_line(text: str, most: int = MOST_LINE) -> str:
    """A text as a :data:`Line` can have it."""
    return "".join(one if one.isprintable() else " " for one in text)[:most]


def _to_bytes(record: Exchanged) -> bytes:
    data = record.model_dump_json(exclude_defaults=True).encode()
    if len(data) > MOST_BYTES:
        raise ValueError(f"a record of {len(data)} bytes")
    return data
