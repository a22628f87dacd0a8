"""Writes the saved config of a job whenever what is in force has changed, with the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lagom.config_file import Fingerprint, SavedConfig, save_config
from lagom.controller.event_log import EventLog
from lagom.controller.options import Options
from lagom.controller.tuner import CommunicatorTuner
from lagom.journal.evidence import evidence_of
from lagom.version import __version__
from lagom.wire.views import ProcessView


class ConfigWriter:
    """One file: that of the options."""

    def __init__(self, options: Options, events: EventLog) -> None:
        self._options, self._events = options, events
        self._wrote = False

    @property
    def is_written(self) -> bool:
        """Whether the file is there and holds what these ranks found."""
        return self._wrote and self._options.config.exists()

    def begin_anew(self) -> None:
        """Other ranks have come: what is in the file stays until they have found something."""
        self._wrote = False

    def write(
        self, tuners: Sequence[CommunicatorTuner], ranks: Sequence[ProcessView], environment: Mapping[str, str]
    ) -> None:
        """The file as the tuners say now; removed where nothing of it is in force any more."""
        sections = [section for tuner in tuners if (section := tuner.section()) is not None]
        if not sections:
            if self._wrote:
                self._options.config.unlink(missing_ok=True)
            return
        fingerprint = Fingerprint(
            nccl_version=ranks[0].nccl_version,
            ranks=max(len(ranks), *(tuner.view.rank_count for tuner in tuners)),
            nodes=max(section.nodes for section in sections),
            gpu=ranks[0].gpu,
            p2p=ranks[0].peer_access,
        )
        try:
            evidence = tuple(self._evidence(tuners, ranks[0].gpu))
            found = SavedConfig(fingerprint, tuple(sections), dict(environment), evidence)
            save_config(found, self._options.config, remark=f"written by lagom {__version__}")
            self._wrote = True
        except OSError as error:
            self._events.warn(f"the saved config {self._options.config} cannot be written: {error}")

    def _evidence(self, tuners: Sequence[CommunicatorTuner], gpu: str) -> list[dict[str, Any]]:
        views = [tuner.view for tuner in tuners if tuner.section() is not None]
        found = (
            evidence_of(
                self._events.run.comm(view.index),
                ranks=view.rank_count,
                ordinal=view.ordinal,
                name=view.name,
                job=self._options.job,
                gpu=gpu,
            )
            for view in views
        )
        return [evidence for evidence in found if evidence is not None]
