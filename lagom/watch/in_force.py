"""Which config each site runs under now: from the plan in shared memory where that is the one in force, else from the
log's copy of it.

The region holds one plan a communicator: the last one offered. The ranks run the last one they agreed to, and say which
(``active_epoch``). A trial's candidate counts until its lease ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from lagom import journal
from lagom.records import STOCK, CommConfig
from lagom.wire.peek import GroupView, PlanView
from lagom.wire.plan import format_rule


@dataclass(frozen=True, slots=True)
class InForce:
    """``trial`` has a config where the candidate differs from the incumbent, else None. ``known``: whether any of this
    is more than a guess."""

    incumbent: tuple[CommConfig, ...] = ()
    trial: tuple[CommConfig | None, ...] = ()
    rules: tuple[str, ...] = ()
    known: bool = True

    def config(self, site: int) -> CommConfig:
        """The incumbent at a site; stock where the plan has no such site."""
        return self.incumbent[site] if site < len(self.incumbent) else STOCK

    def tried(self, site: int) -> CommConfig | None:
        """The candidate there, if it is another."""
        return self.trial[site] if site < len(self.trial) else None


NOTHING = InForce()
UNKNOWN = InForce(known=False)


def in_force(group: GroupView, comm: journal.CommState) -> InForce:
    """What the ranks of a communicator run under."""
    epochs = {slot.active_epoch for slot in group.slots}
    if not epochs or epochs == {0}:
        return NOTHING
    epoch = max(epochs)
    calls = min(slot.calls for slot in group.slots)
    if group.plan is not None and group.plan.epoch == epoch:
        found = _from_region(group.plan, calls)
    elif (logged := comm.plans.get(epoch)) is not None:
        found = _from_log(logged, calls)
    else:
        return UNKNOWN
    return found if group.has_begun else InForce(rules=found.rules)


def _from_region(plan: PlanView, calls: int) -> InForce:
    trying = plan.has_candidate and calls < plan.end_call
    return InForce(
        tuple(site.incumbent for site in plan.sites),
        tuple(site.candidate if trying and site.candidate != site.incumbent else None for site in plan.sites),
        tuple(format_rule(rule) for rule in plan.rules),
    )


def _from_log(plan: journal.PlanPublished, calls: int) -> InForce:
    incumbent = _configs(plan.incumbent)
    candidate = _configs(plan.candidate or ()) if calls < (plan.end_call or 0) else incumbent
    return InForce(
        incumbent,
        tuple(new if new != old else None for old, new in zip(incumbent, candidate, strict=False)),
        plan.rules,
    )


def _configs(records: tuple[journal.ConfigRecord, ...]) -> tuple[CommConfig, ...]:
    try:
        return tuple(record.config() for record in records)
    except ValueError:  # a name that this lagom does not know
        return ()
