# SPDX-License-Identifier: Apache-2.0
"""What ``lagom run`` puts into the environment of a job, computed from the options and the environment alone.

The user's own settings win: another tuner is refused unless it may be replaced, another profiler keeps its slot.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lagom.environment import conf_settings, count_nodes_told
from lagom.errors import UsageError
from lagom.settings import config_named, interpreter, log_folder, new_job_id, node_folder, read, unknown_variables

TUNER = "NCCL_TUNER_PLUGIN"
PROFILER = "NCCL_PROFILER_PLUGIN"

#: Variables of launchers that start one process for each rank: (number of ranks, rank on this node).
RANK_VARIABLES = (
    ("SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("WORLD_SIZE", "LOCAL_RANK"),
)
#: Modes in which a saved config is put in force.
REPLAYING_MODES = ("replay", "replay-or-tune")
#: Variables in which an outer launcher names the job; the first that is set also names the log folder.
JOB_VARIABLES = ("LAGOM_JOB_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "PMI_JOBID", "MASTER_PORT")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of ``lagom run`` as given; empty = not given."""

    mode: str = ""
    strategy: str = ""
    rules: tuple[str, ...] = ()
    config: Path | None = None  # the saved config to replay
    cached_by: str = ""  # what put it into the cache, and when; empty: it is not from there
    or_tune: bool = False  # search if the saved config does not fit
    directory: Path | None = None
    use_profiler: bool = True
    replace_plugin: bool = False
    controller_options: tuple[str, ...] = ()  # as they stand on the controller's command line
    compared: int = 0  # configs to measure instead of a search
    search_seconds: float | None = None
    recorded: int = 0  # iterations to record instead of a search
    use_atlas: bool = True
    timeline: bool = False  # record kernels through CUPTI


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What will be done: the variables to set, where the log goes, whether this process starts the controller."""

    job: str
    folder: Path
    variables: dict[str, str]
    mode: str  # tune, replay, replay-or-tune or off
    starts_controller: bool
    tunes: bool  # whether the controller is started here, or by the launcher of this node's first rank
    config: Path | None = None  # to be replayed
    cached_by: str = ""  # "lagom tune on 2026-11-25", if it is from the cache
    sets_start: bool = False  # start settings of the saved config are among the variables
    nodes: tuple[str, ...] = ()  # that agreed on the saved config
    rules: tuple[str, ...] = ()  # pinned by hand
    strategy: str = ""
    search_seconds: float | None = None
    compared: int = 0
    recorded: int = 0
    remarks: tuple[str, ...] = ()
    controller_options: tuple[str, ...] = ()
    insists: bool = False  # the log folder was named with --dir: it is an error if it cannot be written
    logs: bool = True
    has_nccl: bool = True  # false: none is found where the job starts

    def without_log(self, reason: str) -> JobPlan:
        """The same plan without a log, and so without tuning. ``reason``: a sentence."""
        variables = {**self.variables, "LAGOM_CONTROLLER": "none"}
        remarks = (*self.remarks, f"{reason} {self._what_is_left()}")
        return replace(self, variables=variables, remarks=remarks, starts_controller=False, logs=False)

    def _what_is_left(self) -> str:
        if self.tunes:
            return "The job runs without a controller: nothing is tuned."
        if self.mode == "replay-or-tune":  # the ranks would have started one if the saved config did not fit
            return (
                "The job runs without a log and without a controller: the saved config is replayed if it fits, and if "
                "not, nothing is tuned."
            )
        return "The job runs without a log."

    def check(self) -> None:
        """Raises :class:`UsageError` if rules, a saved config and configs to compare come together."""
        if self.compared and self.rules:
            raise UsageError(
                "--compare measures rules in turn, --set and LAGOM_SET pin them; leave one of the two out."
            )
        if self.compared and not self.tunes:
            raise UsageError("--compare measures while the job runs; leave out --config and any mode but tune.")
        if self.config is not None and self.rules:
            raise UsageError("--set and LAGOM_SET pin rules, a saved config brings its own; leave one of the two out.")

    def with_variables(self, variables: Mapping[str, str], remarks: tuple[str, ...]) -> JobPlan:
        """The same plan with more variables and remarks."""
        return replace(self, variables={**self.variables, **variables}, remarks=(*self.remarks, *remarks))


def local_rank(environ: Mapping[str, str]) -> int | None:
    """Our rank on this node if an outer launcher (srun, mpirun, torchrun) started one `lagom run` for each rank."""
    for count, rank in RANK_VARIABLES:
        if environ.get(rank, "").isdigit() and environ.get(count, "").isdigit() and int(environ[count]) > 1:
            return int(environ[rank])
    return None


def plan_job(job_options: JobOptions, environ: Mapping[str, str], plugin: Path) -> JobPlan:
    """Plan a job; raises :class:`UsageError` if the user's environment contradicts the options."""
    in_files = conf_settings(environ)
    environ = {**{name: in_files[name] for name in (TUNER, PROFILER) if name in in_files}, **environ}
    check_tuner_slot(environ, plugin, replace=job_options.replace_plugin)
    rank = local_rank(environ)
    job = name_job(environ, rank)
    asked = {"LAGOM_DIR": str(job_options.directory)} if job_options.directory else environ
    folder = _with_node(log_folder(job, asked), environ, is_named=bool(asked.get("LAGOM_DIR")))
    config = job_options.config or config_named(environ)
    mode = choose_mode(job_options, environ, config)
    may_start = environ.get("LAGOM_CONTROLLER") != "none"
    tunes = may_start and mode == "tune"
    variables = _variables(job_options, environ, plugin, folder)
    if config is not None:
        variables["LAGOM_CONFIG"] = str(config.absolute())
    # The ranks find out whether the saved config fits; if not, the first of them starts the controller.
    variables["LAGOM_CONTROLLER"] = "auto" if may_start and mode == "replay-or-tune" else "none"
    if rank is None:
        variables["LAGOM_JOB_ID"] = job
    variables["LAGOM_MODE"] = mode
    plan = JobPlan(
        job=job,
        folder=folder,
        variables=variables,
        mode=mode,
        starts_controller=tunes and rank in (None, 0),
        tunes=tunes,
        config=config if mode in REPLAYING_MODES else None,
        cached_by=job_options.cached_by,
        rules=job_options.rules,
        strategy=read("LAGOM_STRATEGY", {**environ, **variables}),
        search_seconds=job_options.search_seconds,
        compared=job_options.compared,
        recorded=job_options.recorded,
        remarks=_remarks(environ, variables, mode),
        controller_options=job_options.controller_options,
        insists=job_options.directory is not None,
    )
    plan.check()
    return plan


def _with_node(folder: Path, environ: Mapping[str, str], *, is_named: bool) -> Path:
    """The node's own below it, where that of several nodes may be the same on a shared file system; as in ``folder.c``.
    ``is_named``: by the user, or by a benchmark that will look for the log there."""
    may_share = count_nodes_told(environ) > 1 or (environ.get("NCCL_HOSTID") and not is_named)
    return folder / node_folder(environ) if may_share else folder


def name_job(environ: Mapping[str, str], rank: int | None) -> str:
    """LAGOM_JOB_ID, else a new name; of a ``rank`` that an outer launcher started, the name that all its ranks have:
    raises :class:`UsageError` where there is none."""
    if rank is None:
        return environ.get("LAGOM_JOB_ID", "") or new_job_id()
    if named := next(filter(None, map(environ.get, JOB_VARIABLES)), ""):
        return named
    raise UsageError("this rank's launcher does not name the job; set LAGOM_JOB_ID to the same word on every rank.")


def choose_mode(job_options: JobOptions, environ: Mapping[str, str], config: Path | None) -> str:
    """LAGOM_MODE for the job: the option's, else the environment's; ``auto`` stands for replay where there is a saved
    config, else for tune. Raises :class:`UsageError` where that needs a saved config and there is none."""
    mode = job_options.mode or read("LAGOM_MODE", environ)
    if job_options.or_tune:
        if mode not in ("auto", "replay", "replay-or-tune"):
            raise UsageError(f"--or-tune replays a saved config first, mode {mode} does not; leave one of them out.")
        mode = "replay-or-tune"
    if mode == "auto":
        return "tune" if config is None else "replay"
    if mode in REPLAYING_MODES and config is None and not (mode == "replay" and job_options.rules):
        raise UsageError(f"mode {mode} needs a saved config; name one with --config or LAGOM_CONFIG.")
    return mode


def check_tuner_slot(environ: Mapping[str, str], plugin: Path, *, replace: bool) -> None:
    """NCCL loads one tuner; raises :class:`UsageError` if the user has named another one."""
    named = environ.get(TUNER, "")
    if named and not replace and not _is_ours(named, plugin):
        raise UsageError(
            f"{TUNER}={named} is set already, and NCCL loads one tuner only; unset it, or say --replace-plugin to run "
            "with lagom's instead."
        )


def _is_ours(named: str, plugin: Path) -> bool:
    return Path(named).name == plugin.name or Path(named) == plugin


def _variables(job_options: JobOptions, environ: Mapping[str, str], plugin: Path, folder: Path) -> dict[str, str]:
    variables = {TUNER: str(plugin), "LAGOM_DIR": str(folder), "LAGOM_PYTHON": interpreter()}
    if job_options.use_profiler and not environ.get(PROFILER):
        variables[PROFILER] = str(plugin)
    # NCCL 2.27.3 looks a plugin up by name even where a path is given (NVIDIA/nccl#1732).
    paths = [path for path in environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    if str(plugin.parent) not in paths:
        variables["LD_LIBRARY_PATH"] = ":".join([*paths, str(plugin.parent)])
    if job_options.timeline:
        variables["LAGOM_TIMELINE"] = "1"
    if not job_options.use_atlas:
        variables["LAGOM_ATLAS"] = "off"
    if job_options.strategy:
        variables["LAGOM_STRATEGY"] = job_options.strategy
    if job_options.rules:
        variables["LAGOM_SET"] = ";".join(job_options.rules)
    return variables


def _remarks(environ: Mapping[str, str], variables: Mapping[str, str], mode: str) -> tuple[str, ...]:
    remarks = [unknown.sentence for unknown in unknown_variables(environ)]
    profiler = environ.get(PROFILER, "")
    if profiler and not _is_ours(profiler, Path(variables[TUNER])):
        remarks.append(f"{PROFILER}={profiler} keeps NCCL's one profiler slot: no process-group names, no exact joins.")
    if environ.get("LAGOM_CONTROLLER") == "none" and mode in ("replay-or-tune", "tune"):
        remarks.append("LAGOM_CONTROLLER=none: no controller is started, so nothing is tuned or pinned.")
    if "nt=" in variables.get("LAGOM_SET", "") and environ.get("LAGOM_NT") != "1":
        remarks.append("threads (nt=) are left out of the rules: LAGOM_NT=1 allows them.")
    if mode == "replay" and "LAGOM_CONFIG" not in variables:
        remarks.append("rules without a saved config are replayed on NCCL 2.21 to 2.26 only; later ones choose alone.")
    return tuple(remarks)


def say(text: str) -> None:
    """One line on stderr: stdout belongs to the job."""
    print(f"lagom: {text}", file=sys.stderr, flush=True)
