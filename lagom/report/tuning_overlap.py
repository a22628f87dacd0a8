"""What tuning did to the overlap: the kernels of the job before and after, where raw records lie beside the log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lagom import timeline
from lagom.errors import LagomError
from lagom.format import format_percent, format_time
from lagom.journal import CommState, RunState
from lagom.timeline import Profile
from lagom.timeline.config_times import select_iterations
from lagom.timeline.ring_records import has_records, load_records
from lagom.timeline.slowdowns import NOTEWORTHY

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class OverlapChange:
    """The same iteration under stock and as tuned. Stock kernels that never run alone are compared with the tuned run,
    where that presses less."""

    communicator: int
    before: Profile
    after: Profile

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """(what, before, after) in words."""
        both = (self.before, self.after)
        columns = [
            ("iteration (Z)", [format_time(one.z) for one in both]),
            ("communication busy (X)", [format_time(one.x) for one in both]),
            ("compute busy (Y)", [format_time(one.y) for one in both]),
            ("communication hidden", [format_percent(one.overlap_ratio) for one in both]),
            ("communication exposed", [format_time(one.exposed) for one in both]),
            ("contention overhead, of compute", [_overhead(one) for one in both]),
            ("iterations seen", [str(one.steps) for one in both]),
        ]
        return [(name, old, new) for name, (old, new) in columns]

    def figures(self) -> list[tuple[str, Figure]]:
        """The two-stream timeline of a typical iteration, before and after."""
        from lagom.report import timeline_figure

        return [(name, timeline_figure.timeline(one)) for name, one in (("stock", self.before), ("tuned", self.after))]


def overlap(run: RunState, folder: Path) -> tuple[OverlapChange | None, str]:
    """Before and after from the raw records in ``folder``; or None and why not (empty: there are no records)."""
    if not has_records(folder):
        return None, ""
    if not has_records(folder, since=run.start.t if run.start is not None else 0.0):
        return None, "the raw records beside this log are of a job before the one that it tells of."
    search = _only_tuned(run)
    if search is None or search.outcome is None:
        return None, "not exactly one communicator was tuned, so its kernels have no before and after."
    chosen = [config.config() for config in search.outcome.configs_chosen]
    try:
        tables, calls = load_records(folder)
        before, after = select_iterations(tables, calls, ()), select_iterations(tables, calls, chosen)
        if not before or not after:
            return None, "the raw records hold too few iterations under stock or under the tuned configs to compare."
        return OverlapChange(search.index, timeline.profile(before, after), timeline.profile(after)), ""
    except LagomError as error:
        return None, str(error)


def _only_tuned(run: RunState) -> CommState | None:
    tuned = [search for search in run.searched if any(change.changed for change in search.changes())]
    return tuned[0] if len(tuned) == 1 else None


def _overhead(profile: Profile) -> str:
    if profile.coverage.tier != "timeline":
        return "not seen"
    share = format_percent(profile.overhead.share)
    if not profile.overhead.is_lower_bound:
        return share
    never = profile.overhead.unmatched
    blind = f" ({format_percent(never, 0)} of compute never runs alone)" if never > NOTEWORTHY else ""
    return f"at least {share}{blind}"
