# SPDX-License-Identifier: Apache-2.0
"""``lagom.read_run``: a tuned job, read from its log; or a search over start settings, or a comparison, from its raw
samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lagom import journal
from lagom.errors import UsageError
from lagom.experiment.store import FILE
from lagom.files import newest_own
from lagom.format import format_count, format_speedup
from lagom.journal import RunState, Verdict, verdict_of
from lagom.journal.log_status import describe_earlier_jobs, describe_log_status
from lagom.report.from_log import build_report
from lagom.report.run_model import CommReport, RunReport, SiteReport

if TYPE_CHECKING:
    import pandas

    from lagom.report.read_search import Benchmark, StartSearch

#: Communicators of a run in its repr, which has two lines more.
REPR_COMMUNICATORS = 10


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """The newest job of a log folder; made by :func:`read_run`.

    Attributes
    ----------
    log : Path
        The log that was read.
    verdict : str
        One of :data:`lagom.journal.Verdict`. ``improved``: a config that was proven faster than stock is in force.
        ``stock_is_best``: nothing was faster than stock NCCL. ``cut_short``: a limit ended the search with nothing
        faster found. ``stopped``: the job ended before the search. ``running``: the log has no end of the search yet.
        ``pinned``: rules given by hand were in force. ``replayed``: a saved config was in force. ``refused``: the saved
        config does not fit this job. ``other_program``: it fits, and the job makes other calls. ``nothing_to_tune``:
        there was no communicator that could be tuned. ``off``: mode off. ``not_tuned``: nothing was searched. Of
        several communicators: the first of improved, running, stopped, cut_short, stock_is_best that one of them has.
    speedup, speedup_low, speedup_high : float or None
        Stock's iteration time over ours and its 95 % interval, as proven, of the communicator that gained
        most; None where nothing was tested against stock.
    report : RunReport
        What ``lagom report`` prints: by communicator and site NCCL's choice, ours, and the evidence.
    state : RunState
        Everything that the log says, put together.
    """

    log: Path
    verdict: Verdict
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    report: RunReport
    state: RunState

    def __repr__(self) -> str:
        """A line on the job, one each on at most ten communicators: the whole of it is hundreds of lines."""
        gain = "" if self.speedup is None else f", {format_speedup(self.speedup, self.speedup_low, self.speedup_high)}"
        shown = self.communicators[:REPR_COMMUNICATORS]
        lines = [f"Run({str(self.log)!r}, {self.verdict}{gain}, {format_count(len(self.moves), 'move')})"]
        lines += [f"  {comm.name}: {format_count(len(comm.sites), 'site')}; {comm.answer}" for comm in shown]
        more = len(self.communicators) - len(shown)
        return "\n".join([*lines, *([f"  and {format_count(more, 'communicator')} more"] if more else [])])

    @property
    def communicators(self) -> tuple[CommReport, ...]:
        """Each with its sites, the proof for all of them together, and what could not be tuned."""
        return self.report.communicators

    @property
    def sites(self) -> tuple[SiteReport, ...]:
        """Those of all communicators: config under stock and now, evidence, communication times in ns."""
        return tuple(site for comm in self.communicators for site in comm.sites)

    @property
    def moves(self) -> tuple[journal.Move, ...]:
        """Every step of the searches, in the order of the log: what was tried against what, the ratio of iteration
        times with its 95 % interval, the verdict and its reason."""
        return tuple(sorted((move for comm in self.state.comms.values() for move in comm.moves), key=lambda m: m.t))

    def to_dataframe(self) -> pandas.DataFrame:
        """One row a site.

        Returns
        -------
        pandas.DataFrame
            Columns ``communicator``, ``ranks``, ``site``, ``function``, ``bytes``, ``calls_per_iteration``,
            ``context``; ``algorithm``, ``protocol``, ``channels``, ``threads``, ``chunk_bytes`` as set (None: left to
            NCCL), each also as ``stock_...`` (None: not seen); ``stock_ns``, ``ns`` (communication time an iteration
            in the proof) and ``evidence``.

        Raises
        ------
        lagom.errors.UsageError
            pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise UsageError("to_dataframe needs pandas: pip install pandas.") from None
        return pd.DataFrame([_row(comm, site) for comm in self.communicators for site in comm.sites])


def _row(comm: CommReport, site: SiteReport) -> dict[str, Any]:
    row: dict[str, Any] = {"communicator": comm.name, "ranks": comm.ranks, "site": site.index}
    row |= {"function": site.function, "bytes": site.bytes, "calls_per_iteration": site.calls, "context": site.context}
    for prefix, config in (("", site.ours), ("stock_", site.stock)):
        record = journal.ConfigRecord() if config is None else journal.ConfigRecord.of(config)
        row |= {f"{prefix}{name}": value for name, value in record.model_dump().items()}
    return row | {"stock_ns": site.stock_ns, "ns": site.ours_ns, "evidence": site.evidence}


def read_run(folder: Path | str | None = None) -> Run | StartSearch | Benchmark:
    """Read what became of a tuned job, of a search by ``lagom tune``, or of a comparison by ``lagom bench``.

    Parameters
    ----------
    folder : Path or str, optional
        A log folder (``lagom-<job>``) or its ``decisions.jsonl``; or a folder of ``lagom tune`` or ``lagom bench``, or
        its ``bench.json``. Default: the newest of all in ``./lagom-*`` of this user.

    Returns
    -------
    Run, StartSearch or Benchmark
        The newest job of a log, which may still be growing; or the search or comparison. Of a folder that has a log and
        a comparison: the log.

    Raises
    ------
    lagom.errors.JournalError
        There is no log, nothing is in it, or it is none of lagom's.
    lagom.errors.LagomError
        The raw samples cannot be read, or are none of this version's.
    """
    if (samples := _find_samples(folder)) is not None:
        from lagom.report.read_search import read_benchmark, read_search

        if (search := read_search(samples)) is not None:
            return search
        if folder is None or Path(folder) == samples or not (samples.parent / journal.LOG_NAME).exists():
            return read_benchmark(samples)
    return read_log(folder)


def _find_samples(path: Path | str | None) -> Path | None:
    """The file of raw samples that a folder, the file or nothing (the newest of these and of logs in ``./lagom-*``)
    stands for; None where that is a log."""
    if path is None:
        newest = newest_own([*Path().glob(f"lagom-*/{FILE}"), *journal.find_own_logs(Path())])
        return newest[0] if newest and newest[0].name == FILE else None
    file = Path(path) if Path(path).name == FILE else Path(path) / FILE
    return file if file.is_file() else None


def read_log(folder: Path | str | None = None) -> Run:
    """The newest job of a log; raises :class:`lagom.errors.JournalError`."""
    log = journal.find_written(folder)
    damaged: list[int] = []
    state = RunState(journal.read(log, on_damage=lambda number, _: damaged.append(number)))
    lost = f"{len(damaged)} line(s) of the log could not be read; the first is line {damaged[0]}." if damaged else ""
    remarks = (describe_earlier_jobs(state), describe_log_status(state), lost)
    state.remarks += [text for text in remarks if text and text not in state.remarks]
    outcomes = [comm.outcome for comm in state.comms.values() if comm.outcome is not None and comm.outcome.speedup]
    best = max(outcomes, key=lambda outcome: outcome.speedup or 0.0, default=None)
    gain = (None, None, None) if best is None else (best.speedup, best.speedup_low, best.speedup_high)
    return Run(log, verdict_of(state), *gain, build_report(state, str(log)), state)
