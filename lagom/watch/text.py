"""The words and numbers of a snapshot, shared by the screen and the plain lines."""

from __future__ import annotations

from collections.abc import Iterable

from lagom.format import format_elapsed, format_percent, format_rate, format_speedup
from lagom.watch.snapshot import Agreement, GroupSnapshot, JobSnapshot, SiteSnapshot


def lost(group: GroupSnapshot) -> str:
    """``3.4 iterations (0.28 s)``."""
    if not group.configs_tried and not group.lost_iterations:
        return "-"
    seconds = "" if group.lost_seconds is None else f" ({group.lost_seconds:.2g} s)"
    return f"{group.lost_iterations:.1f} iterations{seconds}"


def gained(group: GroupSnapshot) -> str:
    """``1.143x stock [1.137, 1.151]``, once it is proven."""
    if group.speedup is None:
        return ""
    return format_speedup(group.speedup.ratio, group.speedup.low, group.speedup.high)


def phase(group: GroupSnapshot) -> str:
    """The phase, with its reason, and what the ranks are about to agree on."""
    words = group.phase.value + (f": {group.detail}" if group.detail else "")
    if group.agreement is not Agreement.AGREED:
        words += f" (plan {group.agreement.value})"
    return words


def job_facts(job: JobSnapshot, now: float) -> list[str]:
    """What there is to say of a job beside its name."""
    who = f"controller {job.controller_pid}" if job.controller_pid else "no controller"
    facts = [" ".join(word for word in ("mode", job.mode, job.strategy) if word) if job.mode else ""]
    facts += [f"{job.ranks} ranks here", " ".join(("NCCL", *job.nccl)) if job.nccl else "", job.gpu, who]
    facts += [f"up {format_elapsed(now - job.started)}", "simulated clock" if job.simulated_clock else ""]
    return [fact for fact in facts if fact]


def group_facts(group: GroupSnapshot) -> list[str]:
    """The numbers of a communicator, those that are known."""
    facts = [f"{format_rate(group.calls_per_second)} calls/s"] if group.calls_per_second is not None else []
    if group.iterations_per_second is not None:
        facts.append(f"{format_rate(group.iterations_per_second)} iterations/s")
    if group.stock_z_ns is not None:
        facts.append(f"stock {group.stock_z_ns / 1e6:.1f} ms")
    facts += [gained(group)] if group.speedup is not None else []
    if group.resolvable is not None:
        facts.append(f"resolvable {format_percent(group.resolvable, 2)}")
    if group.configs_tried:
        facts.append(f"{group.configs_tried} trials, lost {lost(group)}")
    return facts + list(_troubles(group))


def _troubles(group: GroupSnapshot) -> Iterable[str]:
    if group.here < group.ranks and group.nodes > 1:
        yield f"{group.here} of its {group.ranks} ranks here"
    if group.unrecorded:
        yield f"{group.unrecorded} records dropped"
    if group.suspensions:
        yield f"program left {group.suspensions}x"
    if group.graph_captured:
        yield "CUDA graph captured"
    never = [f"{count} {kind.replace('_', ' ')}" for kind, count in group.untunable.items() if count]
    if never:
        yield f"not tunable: {', '.join(never)}"


def changed_sites(group: GroupSnapshot) -> list[str]:
    """``allgather 416M: nc=3`` for each site that does not run as NCCL would have it, and each pinned rule."""
    return [site_words(site) for site in group.sites if site.in_force != "stock" or site.trial] + list(group.rules)


def site_words(site: SiteSnapshot) -> str:
    """A site with what it runs under and what is tried."""
    trial = f" (trying {site.trial})" if site.trial else ""
    return f"{site.name}: {site.in_force}{trial}"
