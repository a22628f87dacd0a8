# SPDX-License-Identifier: Apache-2.0
"""A decision log as one offline HTML file with its pictures beside it."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lagom.files import own_file
from lagom.format import SIMULATED, describe_interval, format_percent, format_time
from lagom.journal import CommState, PlanPublished, RunState, SiteChange, Step, describe_pinned, describe_stopped
from lagom.report import from_config, page, style, tuning_figures, tuning_kernels
from lagom.report.tuning_kernels import OverlapChange, Patterns

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Card:
    """A number at the top of the page."""

    value: str
    label: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One communicator's part of the page."""

    name: str
    answer: str
    search: CommState
    cards: list[Card]
    path: Markup | None
    convergence: Markup | None
    sites: Markup | None
    changes: list[SiteChange]
    steps: list[Step]
    overlap: OverlapChange | None = None
    timelines: list[tuple[str, Markup]] = field(default_factory=list)
    patterns: Patterns | None = None
    pattern_picture: Markup | None = None


def describe_verdict(search: CommState) -> str:
    """How the search ended, in one sentence."""
    outcome = search.outcome
    if outcome is None:
        return f"The search was still going after {len(search.moves)} moves."
    if outcome.verdict == "improved" and outcome.speedup is not None:
        interval = describe_interval(outcome.speedup_low, outcome.speedup_high)
        return f"The job runs {outcome.speedup:.3f}× as fast as with plain NCCL{interval}."
    if outcome.verdict == "stock_is_best":
        tried = f"Plain NCCL is already best here: {outcome.configs} configs were tried"
        seen = outcome.resolvable
        return f"{tried}." if seen is None else f"{tried}, and a gain of {format_percent(seen)} would have shown."
    if outcome.verdict == "cut_short" and outcome.best is None:
        return (
            f"The search was cut short with nothing faster than plain NCCL found: {outcome.configs} configs were tried."
        )
    return f"The search was {describe_stopped(search)}."


def find_applied(comm: CommState) -> PlanPublished | None:
    """What was put in force by hand or from a saved config; not one of which it was said that nothing came up."""
    plan = comm.in_force
    return None if plan is not None and plan.purpose == "replay" and comm.not_tuned else plan


def describe_communicator(comm: CommState, saved: str = "") -> str:
    """The result for one communicator, in a sentence or two: the same on a terminal and on the page. ``saved``: the
    saved config that the job was started with."""
    plan = find_applied(comm)
    if comm.pinned:
        return describe_pinned(comm)
    if comm.was_searched:
        return describe_verdict(comm)
    if plan is not None and plan.purpose == "replay":
        return f"Replayed from a saved config, agreed by every rank; nothing was tried here.{_found_before(saved)}"
    if comm.program is None:
        return "No iteration was found here, so nothing was tried; NCCL decides."
    return "Nothing was tried here; NCCL decides."


def _found_before(saved: str) -> str:
    if not saved:
        return ""
    proof = from_config.describe_proof(Path(saved))
    said = f"{proof} Its evidence" if proof else "Its speed-up and evidence"
    return f" {said}: lagom report {shlex.quote(saved)}"


def describe_no_search(run: RunState) -> str:
    """The result of a log without a communicator: a refused saved config, or another reason."""
    reason = next(iter(run.not_tuned), "no communicator of 2 or more ranks was seen")
    if "config_refused" in run.causes:
        return f"{reason[0].upper()}{reason[1:]}."
    return f"Nothing was tuned{'' if run.end is not None else ' yet'}: {reason}."


def answers(run: RunState) -> list[str]:
    """That it is simulated, if it is; then the result for each communicator, a sentence or two each."""
    named = len(run.comms) > 1
    saved = run.start.config if run.start is not None else ""
    found = [(f"{comm.name}: " if named else "") + describe_communicator(comm, saved) for comm in run.comms.values()]
    return _as_simulated(run, found or [describe_no_search(run)])


def _as_simulated(run: RunState, sentences: list[str]) -> list[str]:
    return [SIMULATED, *sentences] if run.is_simulated else sentences


def _above_parts(run: RunState) -> list[str]:
    """What stands on the page before its parts, each of which has its own result."""
    return _as_simulated(run, []) if run.searched else answers(run)


def write_page(
    run: RunState, path: Path, source: str, records: Path | None = None, *, remarks: Iterable[str] = ()
) -> list[Path]:
    """The page as the file ``path`` (``*.html``), or as ``report.html`` in the folder ``path`` with PNGs of its
    pictures beside it; with what became of the overlap where the log folder ``records`` holds raw ones. Pictures of
    an earlier report in that folder that this one has not are removed. Returns what was written."""
    folder = None if path.suffix.lower() in (".html", ".htm") else path
    page_file = path if folder is None else folder / PAGE
    page.make_folder(page_file.parent)
    before = [] if folder is None else _earlier_pictures(folder)
    written: list[Path] = []
    recorded, why_not = tuning_kernels.read_overlap(run, records) if records is not None else (None, "")
    said = [*_remarks(run), *remarks, *([why_not] if why_not else [])]
    parts = []
    for search in run.searched:
        kept = tuning_kernels.read_kernels(search, records) if records is not None else tuning_kernels.Kernels()
        said += [kept.remark] if kept.remark else []
        whole = recorded if recorded is not None and recorded.communicator == search.index else None
        parts.append(_part(search, folder, written, whole or kept.overlap, kept.patterns))
    values: dict[str, Any] = {"source": _source(run, source), "parts": parts}
    values |= {"remarks": said, "answers": _above_parts(run)}
    text = page.render("tuning.html.j2", title="Lagom: tuning report", **values)
    page.write(page_file, text)
    _remove(set(before).difference(written))
    return [page_file, *written]


def _part(
    search: CommState,
    folder: Path | None,
    written: list[Path],
    overlap: OverlapChange | None,
    patterns: Patterns | None,
) -> Part:
    prefix = f"{search.index}-" if search.index else ""

    def saved(kind: str, figure: Figure) -> Markup:
        """As a picture in the page, and as a PNG beside it where it has a folder."""
        if folder is not None:
            written.append(folder / f"{prefix}{kind}.png")
            style.save_png(figure, written[-1])
        return page.picture(style.to_svg(figure))

    def drawn(kind: str, figure: Figure | None) -> Markup | None:
        return None if figure is None else saved(kind, figure)

    return Part(
        name=f"{search.name}, {search.ranks} ranks" if search.ranks else search.name,
        answer=describe_verdict(search),
        search=search,
        cards=_cards(search),
        path=drawn("path", tuning_figures.draw_path(search)),
        convergence=drawn("convergence", tuning_figures.draw_convergence(search)),
        sites=drawn("sites", tuning_figures.draw_sites(search)),
        changes=search.changes(),
        steps=search.steps(),
        overlap=overlap,
        timelines=[(name, saved(f"timeline-{name}", figure))
                   for name, figure in (overlap.figures() if overlap is not None else [])],
        patterns=patterns,
        pattern_picture=drawn("patterns", None if patterns is None else tuning_figures.draw_patterns(patterns)),
    )  # fmt: skip


def _cards(search: CommState) -> list[Card]:
    outcome, base = search.outcome, search.baseline
    cards = []
    if outcome is not None and outcome.speedup is not None:
        better = outcome.verdict == "improved"
        cards.append(Card(f"{outcome.speedup:.3f}×", "proven speed-up", "good" if better else ""))
    if base is not None and base.z is not None:
        cards.append(Card(format_time(base.z), "an iteration under plain NCCL (Z)"))
    cards.append(Card(str(len(search.moves)), "windows measured"))
    if outcome is not None:
        cards.append(Card(str(outcome.configs), "configs tried"))
    kind = "loss" if search.regret else ""
    cards.append(Card(f"{search.regret:.1f}", "iterations lost while searching (regret)", kind))
    if outcome is not None and outcome.resolvable is not None and not outcome.cut_short:
        cards.append(Card(format_percent(outcome.resolvable), "smallest effect that would have shown"))
    return cards


def _source(run: RunState, source: str) -> str:
    took = "" if run.end is None or run.end.seconds is None else f"{run.end.seconds:.0f} s"
    ranks = f"{len(run.ranks)} ranks" if run.ranks else ""
    job, strategy = (run.start.job, run.start.strategy) if run.start is not None else ("", "")
    gpu, nccl = gpu_of(run), nccl_of(run)
    parts = [job, ranks, gpu, f"NCCL {nccl}" if nccl else "", f"strategy {strategy}" if strategy else "", took, source]
    return " · ".join(part for part in parts if part)


def gpu_of(run: RunState) -> str:
    """Of the ranks that say so, the last."""
    return next((rank.gpu for rank in reversed(run.ranks) if rank.gpu), "")


def nccl_of(run: RunState) -> str:
    """Its release, likewise."""
    return next((rank.nccl for rank in reversed(run.ranks) if rank.nccl), "")


def _remarks(run: RunState) -> list[str]:
    remarks = list(run.remarks)
    if run.plans_aborted:
        remarks.append(f"{run.plans_aborted} plan(s) aborted: not every rank agreed in time, so nothing changed.")
    if run.end is None:
        remarks.append(
            "The log has no last line: the job is still running, or was killed, or could not write it (a full disk)."
        )
    return remarks


# -- what an earlier report left in the folder of a new one

PAGE = "report.html"
#: What a tuning report calls its pictures; those of a second communicator have its number in front.
PICTURE = re.compile(r"(\d+-)?(path|convergence|sites|patterns|timeline-stock|timeline-tuned)\.png")


def _earlier_pictures(folder: Path) -> list[Path]:
    """Those of the report that lies in a folder; none where no report does: then they are somebody else's."""
    if own_file(folder / PAGE) is None:
        return []
    return [file for file in folder.iterdir() if PICTURE.fullmatch(file.name) and own_file(file) is not None]


def _remove(files: Iterable[Path]) -> None:
    """One that cannot be removed stays: the page beside it does not show it."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()
