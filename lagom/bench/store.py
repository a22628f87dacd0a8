"""The raw samples of a benchmark, as one JSON file that grows by a run at a time: what was done is not done again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lagom import __version__
from lagom.bench.request import Request
from lagom.errors import LagomError

FILE = "bench.json"
FORMAT = 1


class BadBench(LagomError):
    """A folder of results that cannot be continued."""


class Window(BaseModel):
    """One window of an arm beside stock: per pair the iteration's Z under stock and under the arm, ns, in the order
    measured; X likewise where it was seen."""

    model_config = ConfigDict(extra="ignore")
    arm: str
    iteration: int | None = None
    z: list[tuple[float, float]]
    x: list[tuple[float, float] | None] = Field(default_factory=list)


class RunRecord(BaseModel):
    """One process of the job. ``kind`` is that of :class:`lagom.bench.arms.Kind`; ``value`` is the typical iteration by
    ``measure`` (the unit is the metric's; seconds a call; seconds) and ``samples`` are what it was taken from."""

    model_config = ConfigDict(extra="ignore")
    kind: str
    arm: str = ""
    round: int = 0
    began: float = 0.0
    seconds: float = 0.0
    exit: int = 0
    ended: str = "itself"  # itself | us (the measurement was complete) | limit (of time)
    measure: str = ""
    value: float | None = None
    samples: list[float] = Field(default_factory=list)
    windows: list[Window] = Field(default_factory=list)
    outcome: dict[str, Any] | None = None
    sites: list[dict[str, Any]] = Field(default_factory=list)
    measured_by: str = ""  # the tier: nccl kernels, timeline, host
    nccl: str = ""
    gpu: str = ""
    notes: list[str] = Field(default_factory=list)
    output: list[str] = Field(default_factory=list)
    log: str = ""

    @property
    def failed(self) -> bool:
        """Whether the job ended badly by itself, or gave nothing."""
        return (self.exit != 0 and self.ended == "itself") or (self.ended == "limit" and not self.is_useful)

    @property
    def last_words(self) -> str:
        """What the job said last, for whoever asks why it failed; our own first and last lines do not tell."""
        said = [line for line in self.output if line.strip() and not line.startswith("lagom: ")]
        return said[-1] if said else "it said nothing"

    @property
    def is_partial(self) -> bool:
        """Whether it was cut off in the midst of a comparison: what it measured counts, but more is wanted."""
        return self.kind == "in job" and self.ended == "limit"

    @property
    def is_useful(self) -> bool:
        """Whether anything was measured."""
        return bool(self.windows) or self.value is not None or self.outcome is not None


class BenchRecord(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="ignore")
    format: int = FORMAT
    lagom: str = __version__
    command: list[str]
    arms: list[str]
    metric: str = ""
    higher_is_better: bool = False
    runs: list[RunRecord] = Field(default_factory=list)

    def runs_of(self, kind: str, arm: str | None = None) -> list[RunRecord]:
        """The runs of one kind, in order, of one arm if named."""
        return [run for run in self.runs if run.kind == kind and arm in (None, run.arm)]


class Store:
    """``bench.json`` in the folder of results."""

    def __init__(self, request: Request) -> None:
        """Opens or begins it; raises :class:`BadBench` if the folder holds another benchmark."""
        self.path = request.folder / FILE
        try:
            request.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadBench(f"{request.folder} cannot be made ({error.strerror}); name another with --out.") from error
        self.record = BenchRecord.model_validate(request.key())
        if self.path.exists():
            self.record = self._continued(request)

    def _continued(self, request: Request) -> BenchRecord:
        found = read_record(self.path)
        for name, wanted in request.key().items():
            if getattr(found, name) != wanted:
                raise BadBench(
                    f"{self.path} holds another benchmark (its {name} differs); name another folder with --out, or say "
                    "--fresh to begin anew."
                )
        return found

    def add(self, run: RunRecord) -> None:
        """One more run, on disk before anything else happens."""
        self.record.runs.append(run)
        partial = self.path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(self.record.model_dump_json(indent=1) + "\n")
        partial.replace(self.path)


def read_record(path: Path) -> BenchRecord:
    """A file of results; raises :class:`BadBench`."""
    try:
        return BenchRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise BadBench(f"{path} is no benchmark of lagom's: {error}") from error
