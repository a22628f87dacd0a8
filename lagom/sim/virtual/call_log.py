# SPDX-License-Identifier: Apache-2.0
"""Did every rank run every call with the same config? A rank's logs, and how they are compared.

Each rank keeps one 64-bit word a call and appends them to a file of its own, iteration by iteration: what a killed rank
ran is on record too. The comparison hashes blocks of calls first, so a million calls cost a thousand comparisons; on
a difference the words name the call.

On request (``keep_plans``) also which plan was in force from which call on. Files in the job's folder, of communicator
C and rank R: ``C.R.plans`` has a line "epoch first-call" for each plan that came into force, ``C.R.shapes`` a word
a call (function and size), ``C.EPOCH.plan`` the plan's bytes, copied by whichever rank still found them whole in shared
memory.
"""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lagom.records import Algorithm, CommConfig, Protocol
from lagom.sim.virtual.process_entry import ProcessEntry
from lagom.sim.virtual.selection import CollectiveCall

BLOCK_CALLS = 1024


def pack(config: CommConfig) -> int:
    """An effective config as one word: chunk | threads | channels | algorithm | protocol."""
    algorithm = 15 if config.algorithm is None else int(config.algorithm)
    protocol = 15 if config.protocol is None else int(config.protocol)
    return (
        (config.chunk_bytes or 0) << 32
        | (config.threads or 0) << 16
        | (config.channels or 0) << 8
        | algorithm << 4
        | protocol
    )


def unpack(word: int) -> CommConfig:
    """The config of :func:`pack`."""
    algorithm, protocol = word >> 4 & 15, word & 15
    return CommConfig(
        None if algorithm == 15 else Algorithm(algorithm),
        None if protocol == 15 else Protocol(protocol),
        (word >> 8 & 0xFF) or None,
        (word >> 16 & 0xFFFF) or None,
        (word >> 32) or None,
    )


class CallLog:
    """What one rank ran, by communicator, in call order: one file a communicator, ``<comm_id>.<rank>.calls`` with the
    words, native byte order."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self._unsaved: dict[int, array[int]] = {}
        self._saved: dict[int, int] = {}

    def add(self, comm_id: int, config: CommConfig) -> None:
        """The next call of ``comm_id`` ran with ``config``."""
        self._unsaved.setdefault(comm_id, array("Q")).append(pack(config))

    def count(self, comm_id: int) -> int:
        """How many calls of ``comm_id`` there were."""
        return self._saved.get(comm_id, 0) + len(self._unsaved.get(comm_id, ()))

    def save(self) -> None:
        """Appends what is new to the files."""
        for comm_id, words in self._unsaved.items():
            with (self._folder / f"{comm_id:x}.{self._rank}.calls").open("ab") as file:
                words.tofile(file)
            self._saved[comm_id] = self._saved.get(comm_id, 0) + len(words)
            del words[:]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first call on which two ranks differ."""

    comm_id: int
    call: int
    by_rank: tuple[tuple[int, CommConfig | None], ...]

    def __str__(self) -> str:
        ran = "; ".join(f"rank {rank}: {config or 'made no such call'}" for rank, config in self.by_rank)
        return f"communicator {self.comm_id:x}, call {self.call}: {ran}"


def load(folder: Path, comm_id: int, rank: int) -> array[int]:
    """The words a rank saved."""
    words: array[int] = array("Q")
    path = folder / f"{comm_id:x}.{rank}.calls"
    with path.open("rb") as file:
        words.fromfile(file, path.stat().st_size // 8)
    return words


def load_configs(folder: Path, comm_id: int, rank: int) -> list[CommConfig]:
    """The effective config of each call a rank made, in order."""
    return [unpack(word) for word in load(folder, comm_id, rank)]


def block_hashes(words: array[int]) -> list[bytes]:
    """A hash of every block of ``BLOCK_CALLS`` calls."""
    raw, size = memoryview(words).cast("B"), BLOCK_CALLS * 8
    return [hashlib.blake2b(raw[at : at + size], digest_size=16).digest() for at in range(0, len(raw), size)]


def compare(comm_id: int, logs: Sequence[array[int]], *, same_length: bool = True) -> Difference | None:
    """The first difference between the ranks' logs of one communicator; ``None`` = there is none.

    With ``same_length`` a rank that made fewer calls differs too; without it only the common calls are compared, for
    ranks that were stopped at different places.
    """
    common = min(map(len, logs))
    if not same_length:
        logs = [log[:common] for log in logs]
    hashes = [block_hashes(log) for log in logs]
    for block in range(max(map(len, hashes))):
        if len({rank[block] if block < len(rank) else b"" for rank in hashes}) > 1:
            return _first_in_block(comm_id, logs, block)
    return None


def _first_in_block(comm_id: int, logs: Sequence[array[int]], block: int) -> Difference:
    for call in range(block * BLOCK_CALLS, (block + 1) * BLOCK_CALLS):
        ran = [log[call] if call < len(log) else None for log in logs]
        if len(set(ran)) > 1:
            configs = tuple((rank, None if word is None else unpack(word)) for rank, word in enumerate(ran))
            return Difference(comm_id, call, configs)
    raise AssertionError("two blocks with different hashes hold the same calls")


def compare_folder(folder: Path, ranks: int) -> list[Difference]:
    """The first difference on every communicator that ``ranks`` ranks saved into ``folder``."""
    comm_ids = sorted({int(path.name.split(".")[0], 16) for path in folder.glob("*.calls")})
    found = (compare(c, _logs(folder, c, ranks)) for c in comm_ids)
    return [difference for difference in found if difference is not None]


def _logs(folder: Path, comm_id: int, ranks: int) -> list[array[int]]:
    members: Iterable[int] = (rank for rank in range(ranks) if (folder / f"{comm_id:x}.{rank}.calls").exists())
    return [load(folder, comm_id, rank) for rank in members]


FUNCTION_SHIFT = 56


class PlanLog:
    """One rank's record."""

    def __init__(self, folder: Path, rank: int, entry: ProcessEntry | None) -> None:
        self._folder, self._rank, self._entry = folder, rank, entry
        self._active: dict[int, int] = {}
        self._shapes: dict[int, array[int]] = {}

    def called(self, comm_id: int, collective: CollectiveCall) -> None:
        """The next call of a communicator."""
        word = int(collective.function) << FUNCTION_SHIFT | collective.bytes
        self._shapes.setdefault(comm_id, array("Q")).append(word)

    def look(self, comm_id: int) -> None:
        """After a call: has another plan come into force?"""
        if self._entry is None:
            return
        epoch, start = self._entry.active(comm_id)
        if epoch == self._active.get(comm_id, 0):
            return
        self._active[comm_id] = epoch
        with (self._folder / f"{comm_id:x}.{self._rank}.plans").open("a") as file:
            file.write(f"{epoch} {start}\n")
        self._keep(self._entry, comm_id, epoch)

    def _keep(self, entry: ProcessEntry, comm_id: int, epoch: int) -> None:
        path = self._folder / f"{comm_id:x}.{epoch}.plan"
        if not path.exists() and (plan := entry.plan_bytes(comm_id, epoch)) is not None:
            with contextlib.suppress(FileExistsError), path.open("xb") as file:
                file.write(plan)

    def save(self) -> None:
        """Appends the shapes of the calls made since."""
        for comm_id, words in self._shapes.items():
            with (self._folder / f"{comm_id:x}.{self._rank}.shapes").open("ab") as file:
                words.tofile(file)
            del words[:]
