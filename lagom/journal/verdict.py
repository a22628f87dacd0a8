# SPDX-License-Identifier: Apache-2.0
"""How the newest job of a log ended, as one word: what ``lagom run`` prints last and :func:`lagom.read_run` returns."""

from __future__ import annotations

from typing import Literal

from lagom.journal.run_state import RunState
from lagom.wire.config_refusal import ConfigRefusal

#: ``improved``: a config that was proven faster than stock is in force. ``running``: the search has no end in the log.
#: ``stopped``: the job ended before the search. ``cut_short``: a limit ended the search with nothing faster found.
#: ``stock_is_best``: nothing was faster than NCCL's own choice. ``pinned``: rules given by hand. ``replayed``: a saved
#: config, or its start settings, is in force. ``refused``: it does not fit this job. ``other_program``: it fits, and
#: the job makes other calls. ``nothing_to_tune``: no communicator that could be tuned. ``off``: mode
#: off. ``not_tuned``: nothing was searched.
Verdict = Literal[
    "improved", "running", "stopped", "cut_short", "stock_is_best", "pinned", "replayed", "refused", "other_program",
    "nothing_to_tune", "off", "not_tuned",
]  # fmt: skip
#: Of several communicators the first of these that one of them has is the run's.
_OF_A_SEARCH: tuple[Verdict, ...] = ("improved", "running", "stopped", "cut_short", "stock_is_best")


def verdict_of(run: RunState) -> Verdict:
    """The verdict on a job, from the fields of its log."""
    if run.start is not None and run.start.mode == "off":
        return "off"
    if any(comm.pinned for comm in run.comms.values()):  # whatever was searched before is in force no more
        return "pinned"
    unended = "running" if run.end is None else "stopped"
    found = {unended if comm.outcome is None else comm.outcome.verdict for comm in run.searched}
    if found:
        return next((verdict for verdict in _OF_A_SEARCH if verdict in found), "not_tuned")
    return _without_a_search(run)


def refusal_of(run: RunState) -> ConfigRefusal | None:
    """Why the saved config of a job was not in force, where that is not the end of the job but the config."""
    verdict = verdict_of(run)
    if verdict == "other_program":
        return ConfigRefusal("program")
    return run.refusal if verdict == "refused" else None


def replay_command(verdict: Verdict | None, config: str, *, is_simulated: bool) -> str:
    """The command that replays the saved config at ``config``, a path as a shell takes it. Empty where nothing is
    proven: a job that was stopped before its proof, or pinned, leaves a saved config, too; and where it is simulated,
    and so refused in a real job."""
    return "" if verdict != "improved" or is_simulated or not config else f"lagom run --config {config} -- CMD"


def _without_a_search(run: RunState) -> Verdict:
    comms = run.comms.values()
    if "config_refused" in run.causes:
        return "refused"
    if any(comm.replayed for comm in comms) or (run.start_settings is not None and run.start_settings.in_force):
        return "replayed"
    if run.start_settings is not None:
        return "refused"
    if any("other_program" in comm.causes for comm in comms):
        return "other_program"
    if run.end is not None and all(comm.is_untunable for comm in comms):
        return "nothing_to_tune"
    return "not_tuned"
