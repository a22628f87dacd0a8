# SPDX-License-Identifier: Apache-2.0
"""The raw samples of an experiment, as one JSON file that grows by a run at a time: what was done is not done again."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, Field, ValidationError

from lagom.errors import LagomError
from lagom.experiment.fingerprint import fingerprint_differences
from lagom.experiment.process import LAUNCHERS_ACCOUNT, LAUNCHERS_LINE, OUR_LINE, TORCHS_REMARK
from lagom.experiment.request import Request
from lagom.files import open_own, open_regular, write_whole
from lagom.version import __version__

FILE = "bench.json"
FORMAT = 3


class BadRecord(LagomError):
    """A folder of results that cannot be continued."""


class OtherSchedule(BadRecord):
    """A file of results of another command than the one expected."""


class ArmWindow(BaseModel):
    """One window of an arm beside stock: per pair the iteration's Z under stock and under the arm, ns, in the order
    measured; X likewise where it was seen."""

    arm: str
    iteration: int | None = None
    z: list[tuple[float, float]]
    x: list[tuple[float, float] | None] = Field(default_factory=list)


class RunRecord(BaseModel):
    """One process of the job. ``kind`` is that of :class:`lagom.experiment.arm.Kind`; ``arm`` names what was run;
    ``stage`` says why, where a schedule has stages; ``settings`` are the variables that it was started with and others
    were not. ``value`` is the typical iteration by ``measure`` (the unit is the metric's; seconds a call; seconds) and
    ``samples`` are what it was taken from."""

    kind: str
    arm: str = ""
    stage: str = ""
    round: int = 0
    settings: dict[str, str] = Field(default_factory=dict)
    began: float = 0.0
    seconds: float = 0.0
    exit: int = 0
    ended: str = "itself"  # or us (the measurement was complete), limit (its own, of time), budget (of the whole)
    cycles: int | None = None  # of a comparison: how many it was asked for
    measure: str = ""
    unit: str | None = None  # of the metric's number; empty: it has none; None: no number was read
    value: float | None = None
    samples: list[float] = Field(default_factory=list)
    windows: list[ArmWindow] = Field(default_factory=list)
    outcome: dict[str, Any] | None = None
    sites: list[dict[str, Any]] = Field(default_factory=list)
    measured_by: str = ""  # the tier: nccl kernels, timeline, host
    nccl: str = ""
    gpu: str = ""
    ranks: int = 0  # of the largest communicator that was seen, and its nodes; 0 = not seen
    nodes: int = 0
    ranks_seen: int = 0  # those whose start settings were compared
    peer_access: bool | None = None
    simulated: bool = False  # a job of virtual ranks
    notes: list[str] = Field(default_factory=list)
    output: list[str] = Field(default_factory=list)
    unlike: str = ""  # of its ranks, who had other settings than it was started with
    node: str = ""  # of several, whose value it is
    reason: str = ""  # why it gave nothing though it did not break down
    called_nccl: bool | None = None  # whether a rank was seen to, through the plugin; None: unknown
    log: str = ""

    @property
    def failed(self) -> bool:
        """Whether the job ended badly by itself, or gave nothing in the time that one process may take."""
        return self.broke_down or (self.ended == "limit" and not self.is_useful)

    @property
    def broke_down(self) -> bool:
        """Whether the job ended badly by itself."""
        return self.exit != 0 and self.ended == "itself"

    @property
    def is_without_nccl(self) -> bool:
        """Whether plain NCCL, or what is compared with it within one job, ran to its end, or until it had shown all
        that was wanted of it, and nobody called NCCL."""
        is_stock = self.kind != "process" or not self.settings
        is_complete = (self.ended == "itself" and self.exit == 0) or (self.ended == "us" and self.value is not None)
        return is_stock and self.called_nccl is False and is_complete

    @property
    def gave_nothing(self) -> bool:
        """Whether what a process of its kind is run for is missing."""
        given = {"in job": bool(self.windows), "process": self.value is not None}
        return not given.get(self.kind, self.outcome is not None)

    @property
    def counted(self) -> float | None:
        """The value, of a process that did not fail: one that broke down may have been slow, or quick, for that."""
        return None if self.failed else self.value

    @property
    def machine(self) -> str:
        """What it ran on."""
        return f"NCCL {self.nccl}, {self.gpu or 'no GPU known'}"

    def ran_where(self, other: RunRecord) -> bool:
        """Whether ``other`` had the same NCCL and GPU, as far as is known."""
        return self.nccl == other.nccl and (self.gpu == other.gpu or not (self.gpu and other.gpu))

    @property
    def last_line(self) -> str:
        """The job's last line of output, to explain a failure, with the launcher's report on a rank that failed. Our
        own first and last lines do not help and are left out."""
        said = [line for line in self.output if line.strip() and not line.startswith(OUR_LINE)]
        own = [line for line in said if not (LAUNCHERS_LINE.match(line) or TORCHS_REMARK.match(line))]
        account = LAUNCHERS_ACCOUNT.match(said[-1]) if said else None
        return (own[-1] if own else "no output") + (f" ({account[1]})" if account else "")

    @property
    def is_partial(self) -> bool:
        """Whether it was cut off, which is no fault of its own: what it measured counts, but more is wanted."""
        cut = self.ended == "budget" or (self.ended == "limit" and not self.failed)
        return cut and (self.kind == "in job" or not self.is_useful)

    @property
    def is_useful(self) -> bool:
        """Whether anything was measured."""
        return bool(self.windows) or self.value is not None or self.outcome is not None


class RecordHead(BaseModel):
    """Of a file, what is read before anything else of it. ``schedule``: which command chooses its processes."""

    format: int
    schedule: str = Field("", pattern="^[a-z]*$")  # is printed, whoever wrote the file


class ExperimentRecord(RecordHead):
    """The whole file. What a schedule set out to do is in a class of its own, which is told by ``schedule``."""

    #: Fields that must be the same for the samples of two calls to belong together.
    KEY: ClassVar[tuple[str, ...]] = ("command", "metric", "higher_is_better")
    format: int = FORMAT
    lagom: str = __version__
    command: list[str]
    metric: str = ""
    higher_is_better: bool = False
    environ: dict[str, str] = Field(default_factory=dict)  # of what makes another job of the command
    runs: list[RunRecord] = Field(default_factory=list)
    nodes: list[str] = Field(default_factory=list)  # of a job whose nodes have a launcher each: their names

    def runs_of(self, kind: str, arm: str | None = None) -> list[RunRecord]:
        """The runs of one kind, in order, of one arm if named."""
        return [run for run in self.runs if run.kind == kind and arm in (None, run.arm)]


Record = TypeVar("Record", bound=ExperimentRecord)


class Store(Generic[Record]):
    """``bench.json`` in the folder of results."""

    def __init__(self, request: Request, kind: type[Record], **own: Any) -> None:
        """Opens or begins it in a folder that :func:`lagom.experiment.results_folder.claim` has made; raises
        :class:`BadRecord` if the folder holds another experiment. ``own``: fields of the schedule's record."""
        self.path, asked = request.folder / FILE, {name: getattr(request, name) for name in ExperimentRecord.KEY}
        begun = kind.model_validate({**asked, "environ": request.variables(), **own})
        self.record = self._continued(begun) if os.path.lexists(self.path) else begun

    def _continued(self, begun: Record) -> Record:
        found = read_record(self.path, type(begun), must_be_ours=True)
        differing = [f"its {name} differs" for name in begun.KEY if getattr(found, name) != getattr(begun, name)]
        differing += fingerprint_differences(found.environ, begun.environ)
        if differing:
            raise self._another(f"holds another benchmark ({'; '.join(differing)})")
        return found

    def _another(self, what: str) -> BadRecord:
        return BadRecord(f"{self.path} {what}; use another folder with --out, or use --fresh to start over.")

    def add(self, run: RunRecord) -> None:
        """One more run, on disk before anything else happens; raises :class:`BadRecord` if it ran on another NCCL or
        GPU than those before it. Variables of its own may load another NCCL: that is what they are for."""
        same = [one for one in self.record.runs if one.nccl and not one.settings]
        if same and run.nccl and not run.settings and not same[0].ran_where(run):
            raise self._another(f"was measured on {same[0].machine}, and this process ran on {run.machine}")
        self.record.runs.append(run)
        self.save()

    def save(self) -> None:
        """The record as it is now."""
        self._write(self.path)

    def check_room(self) -> None:
        """Raises :class:`BadRecord` if a process's samples could not be kept as things stand: it is not to be started
        for nothing."""
        trial = self.path.with_suffix(f".{os.getpid()}.partial")
        self._write(trial)
        trial.unlink()

    def _write(self, path: Path) -> None:
        try:
            write_whole(path, self.record.model_dump_json(indent=1) + "\n", mode=0o644, sync=True)
        except OSError as error:
            raise cannot_be_written(self.path, error) from error


def cannot_be_written(path: Path, error: OSError) -> BadRecord:
    """For any file of the folder: what it held before is whole."""
    return BadRecord(
        f"{path} cannot be written ({error.strerror or error}); fix that; the same command (without --fresh) continues "
        "after the last process whose samples were kept."
    )


def is_record(path: Path) -> bool:
    """Whether the file is a record of any version of lagom."""
    try:
        with open_regular(path) as file:
            found = json.load(file)
        return "lagom" in found and RecordHead.model_validate(found).format > 0
    except (OSError, ValueError, TypeError):
        return False


def read_record(path: Path, kind: type[Record], *, must_be_ours: bool = False) -> Record:
    """A file of results; raises :class:`BadRecord`, and :class:`OtherSchedule` where ``kind`` is the record of another
    schedule; :class:`ExperimentRecord` is what all have. ``must_be_ours``: what it names is run, so that no link and no
    other user's file is read."""
    try:
        with os.fdopen(open_own(path), "rb") if must_be_ours else open_regular(path) as file:
            if must_be_ours and os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise BadRecord(f"{path} may be written by every user, so it is not continued; measure with --fresh.")
            text = file.read()
        head, wanted = RecordHead.model_validate_json(text), kind.model_fields["schedule"].default
        if head.format != FORMAT:
            raise BadRecord(
                f"{path} has format {head.format} and this lagom reads format {FORMAT}; use the version of lagom that "
                "wrote it, or measure anew with --fresh."
            )
        if wanted not in ("", head.schedule):
            raise OtherSchedule(
                f"{path} holds results of `lagom {head.schedule}`, and those of `lagom {wanted}` are needed; name "
                "another folder, or use --fresh to start over."
            )
        return kind.model_validate_json(text)
    except OSError as error:
        raise BadRecord(f"{path} cannot be read ({error.strerror or error}); make it a file you may read.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "its beginning"
        what = f"{path} is not a benchmark file of lagom, or is damaged (at {where}: {first['msg']})"
        raise BadRecord(f"{what}; restore a complete copy, or start over with --fresh.") from error
