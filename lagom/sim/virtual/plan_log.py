"""Which plan was in force from which call on, on one rank, and what it said: for whoever checks a run call by call.

Files in the job's folder, of communicator C and rank R: ``C.R.plans`` has a line "epoch first-call" for each plan that
came into force, ``C.R.shapes`` a word a call (function and size), and ``C.EPOCH.plan`` the plan's bytes, copied by
whichever rank still found them whole in shared memory.
"""

from __future__ import annotations

import contextlib
from array import array
from pathlib import Path

from lagom.sim.virtual.entry import ProcessEntry
from lagom.sim.virtual.selection import CollectiveCall

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
