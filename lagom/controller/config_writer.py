# SPDX-License-Identifier: Apache-2.0
"""Writes the saved config of a job whenever what is in force has changed, with the evidence for it; and beside it, what
a stopped search leaves for the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lagom.config_file import Fingerprint, SavedConfig, Section, save_config
from lagom.controller.event_log import EventLog
from lagom.controller.options import Options
from lagom.controller.tuner import CommunicatorTuner
from lagom.journal.evidence import evidence_of
from lagom.version import __version__
from lagom.wire.views import ProcessView

UNPROVEN = "not proven: the best that a stopped search had measured. The next search tries it first (--candidates)."

Entry = tuple[Section, dict[str, Any] | None]
"""One section of a saved config, and the evidence for it."""


class ConfigWriter:
    """The two files of the options: ``config`` and ``best_so_far``."""

    def __init__(self, options: Options, events: EventLog) -> None:
        self._options, self._events = options, events
        self._wrote = False

    @property
    def is_written(self) -> bool:
        """Whether the saved config is there and holds what these ranks found."""
        return self._wrote and self._options.config.exists()

    def begin_anew(self) -> None:
        """Other ranks have come: what is in the file stays until they have found something."""
        self._wrote = False

    def write(
        self, tuners: Sequence[CommunicatorTuner], ranks: Sequence[ProcessView], environment: Mapping[str, str]
    ) -> None:
        """The files as the tuners say now; removed where nothing of it is in force, or left to be tried, any more."""
        if confirmed := self._confirmed(tuners):
            self._wrote |= self._save(self._options.config, confirmed, tuners, ranks, environment)
        elif self._wrote:
            self._options.config.unlink(missing_ok=True)
        if unproven := self._unproven(tuners):
            self._save(self._options.best_so_far, unproven, tuners, ranks, environment, UNPROVEN)
        elif any(tuner.state.search_has_ended for tuner in tuners):
            self._options.best_so_far.unlink(missing_ok=True)

    def _confirmed(self, tuners: Sequence[CommunicatorTuner]) -> list[Entry]:
        found = ((tuner, tuner.section()) for tuner in tuners)
        return [(section, self._evidence(tuner)) for tuner, section in found if section is not None]

    def _unproven(self, tuners: Sequence[CommunicatorTuner]) -> list[Entry]:
        """The first section of a communicator is the best that was measured, and the evidence is about that one."""
        entries: list[Entry] = []
        for tuner in tuners:
            sections = tuner.state.unproven
            entries += [(section, None if at else self._best_so_far(tuner)) for at, section in enumerate(sections)]
        return entries

    def _save(
        self,
        path: Path,
        entries: Sequence[Entry],
        tuners: Sequence[CommunicatorTuner],
        ranks: Sequence[ProcessView],
        environment: Mapping[str, str],
        remark: str = "",
    ) -> bool:
        """Whether it could be written."""
        first, sections = ranks[0], tuple(section for section, _ in entries)
        fingerprint = Fingerprint(
            nccl_version=first.nccl_version,
            ranks=max(len(ranks), *(tuner.view.rank_count for tuner in tuners)),
            nodes=max(section.nodes for section in sections),
            gpu=first.gpu,
            p2p=first.peer_access,
            simulated=first.simulated,
        )
        evidence = tuple({**found, "gpu": first.gpu} for _, found in entries if found is not None)
        saved = SavedConfig(fingerprint, sections, dict(environment), evidence)
        try:
            save_config(saved, path, remark=f"written by lagom {__version__}\n{remark}")
        except OSError as error:
            self._events.warn(f"the saved config {path} cannot be written: {error}")
            return False
        return True

    def _evidence(self, tuner: CommunicatorTuner) -> dict[str, Any] | None:
        view = tuner.view
        return evidence_of(
            self._events.run.comm(view.index),
            ranks=view.rank_count,
            ordinal=view.ordinal,
            name=view.name,
            job=self._options.job,
            gpu="",
        )

    def _best_so_far(self, tuner: CommunicatorTuner) -> dict[str, Any]:
        """How fast the best of a search without its proof looked, as a speed-up over stock with its 95 % interval."""
        evidence, outcome = self._evidence(tuner), self._events.run.comm(tuner.view.index).outcome
        if evidence is None or outcome is None:
            return {"not_proven": {}}
        if outcome.missing_pairs == 0:
            return evidence  # proven; the next search begins with it
        evidence["outcome"]["reason"] = f"not proven, the search ended before: {outcome.reason}"
        looked = outcome.model_dump(include={"best_speedup", "best_low", "best_high"})
        return {**evidence, "confirmed": None, "not_proven": looked}
