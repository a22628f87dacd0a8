# SPDX-License-Identifier: Apache-2.0
"""What `lagom run` sets: the user's own settings win, and one controller a node is started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lagom.errors import UsageError
from lagom.launch.job_plan import JobOptions, local_rank, plan_job

PLUGIN = Path("/opt/lagom/_lib/libnccl-tuner-lagom.so")
SLURM_STEP = {"SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_NUM_NODES": "2", "SLURM_JOB_ID": "42", "SLURM_LOCALID": "0"}


def variables(job_options: JobOptions = JobOptions(), environ: dict[str, str] | None = None) -> dict[str, str]:  # noqa: B008 (frozen)
    return plan_job(job_options, environ or {}, PLUGIN).variables


def test_both_halves_are_named_and_found_by_name_too() -> None:
    found = variables(environ={"LD_LIBRARY_PATH": "/cuda/lib"})
    assert found["NCCL_TUNER_PLUGIN"] == found["NCCL_PROFILER_PLUGIN"] == str(PLUGIN)
    assert found["LD_LIBRARY_PATH"] == f"/cuda/lib:{PLUGIN.parent}"
    assert found["LAGOM_CONTROLLER"] == "none"


def test_another_tuner_is_refused_unless_it_may_be_replaced() -> None:
    environ = {"NCCL_TUNER_PLUGIN": "/opt/aws/libnccl-ofi-tuner.so"}
    with pytest.raises(UsageError, match="--replace-plugin"):
        plan_job(JobOptions(), environ, PLUGIN)
    assert variables(JobOptions(replace_plugin=True), environ)["NCCL_TUNER_PLUGIN"] == str(PLUGIN)
    assert variables(environ={"NCCL_TUNER_PLUGIN": str(PLUGIN)})["NCCL_TUNER_PLUGIN"] == str(PLUGIN)


def test_another_profiler_keeps_its_slot() -> None:
    plan = plan_job(JobOptions(), {"NCCL_PROFILER_PLUGIN": "/opt/inspector.so"}, PLUGIN)
    assert "NCCL_PROFILER_PLUGIN" not in plan.variables
    assert "inspector" in plan.remarks[0]
    assert "NCCL_PROFILER_PLUGIN" not in variables(JobOptions(use_profiler=False))


def test_a_plugin_that_a_file_of_nccl_names_is_the_users_too(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("NCCL_PROFILER_PLUGIN=theirs.so\n")
    named = {"NCCL_CONF_FILE": str(tmp_path / "conf")}
    assert "NCCL_PROFILER_PLUGIN" not in variables(environ=named)
    (tmp_path / "conf").write_text("NCCL_TUNER_PLUGIN=theirs.so\n")
    with pytest.raises(UsageError, match="set already"):
        variables(environ=named)


@pytest.mark.parametrize(
    ("mode", "config", "starts", "controller"),
    [
        ("", None, True, "none"),
        ("tune", None, True, "none"),
        ("tune", Path("p.lagom"), True, "none"),
        ("auto", Path("p.lagom"), False, "none"),
        ("replay-or-tune", Path("p.lagom"), False, "auto"),
        ("replay", Path("p.lagom"), False, "none"),
        ("off", None, False, "none"),
    ],
)
def test_a_controller_is_started_where_one_is_needed(
    mode: str, config: Path | None, starts: bool, controller: str
) -> None:
    plan = plan_job(JobOptions(mode=mode, config=config), {}, PLUGIN)
    assert plan.starts_controller is starts
    assert plan.variables["LAGOM_CONTROLLER"] == controller
    if config:
        assert plan.variables["LAGOM_CONFIG"] == str(config.absolute())


def test_under_srun_all_ranks_share_one_job_and_the_first_of_a_node_starts_the_controller() -> None:
    environ = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_JOB_ID": "42", "SLURM_LOCALID": "3"}
    plan = plan_job(JobOptions(), environ, PLUGIN)
    assert not plan.starts_controller
    assert "LAGOM_JOB_ID" not in plan.variables, "the ranks' own variables name the job"
    assert plan.folder.name == "lagom-42"
    assert plan_job(JobOptions(), environ | {"SLURM_LOCALID": "0"}, PLUGIN).starts_controller


def test_a_single_task_of_slurm_is_a_job_of_its_own() -> None:
    environ = {"SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "42", "SLURM_LOCALID": "0"}
    assert local_rank(environ) is None
    assert variables(environ=environ)["LAGOM_JOB_ID"] != "42"


def test_a_rank_without_a_name_for_its_job_is_refused() -> None:
    with pytest.raises(UsageError, match="set LAGOM_JOB_ID"):
        plan_job(JobOptions(), {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, PLUGIN)


def test_rules_alone_can_be_replayed_and_where_is_said() -> None:
    plan = plan_job(JobOptions(mode="replay", rules=("any:any:nc=2",)), {}, PLUGIN)
    assert plan.variables["LAGOM_SET"] == "any:any:nc=2"
    assert not plan.tunes
    assert any("NCCL 2.21 to 2.26 only" in remark for remark in plan.remarks)
    with pytest.raises(UsageError, match="needs a saved config"):
        plan_job(JobOptions(mode="replay"), {}, PLUGIN)


def test_pinned_rules_and_strategy_reach_the_job(tmp_path: Path) -> None:
    job_options = JobOptions(strategy="static", rules=("any:any:nc=2", "allgather:any:nc=3"), directory=tmp_path)
    found = variables(job_options)
    assert found["LAGOM_SET"] == "any:any:nc=2;allgather:any:nc=3"
    assert found["LAGOM_STRATEGY"] == "static"
    assert found["LAGOM_DIR"] == str(tmp_path)


def test_a_saved_config_never_starts_a_search_unless_that_is_asked_for() -> None:
    named = {"LAGOM_CONFIG": "/a/config.lagom"}
    plan = plan_job(JobOptions(), named, PLUGIN)
    assert (plan.mode, plan.tunes, str(plan.config)) == ("replay", False, "/a/config.lagom")
    assert plan.variables["LAGOM_CONFIG"] == "/a/config.lagom"
    assert plan_job(JobOptions(or_tune=True), named, PLUGIN).mode == "replay-or-tune"
    assert plan_job(JobOptions(), {**named, "LAGOM_MODE": "replay-or-tune"}, PLUGIN).mode == "replay-or-tune"
    with pytest.raises(UsageError, match="needs a saved config"):
        plan_job(JobOptions(or_tune=True), {}, PLUGIN)
    with pytest.raises(UsageError, match="mode tune does not"):
        plan_job(JobOptions(mode="tune", or_tune=True), named, PLUGIN)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (JobOptions(compared=1, rules=("any:any:nc=2",)), "--compare measures rules in turn"),
        (JobOptions(compared=1, mode="off"), "leave out --config and any mode but tune"),
        (JobOptions(config=Path("a.lagom"), rules=("any:any:nc=2",)), "a saved config brings its own"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: JobOptions, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        plan_job(options, {}, PLUGIN)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        (SLURM_STEP | {"NCCL_HOSTID": "a"}, "lagom-42/node-a"),
        (SLURM_STEP | {"NCCL_HOSTID": "a/../b"}, "lagom-42/node-a-..-b"),
        (SLURM_STEP, f"lagom-42/node-{socket.gethostname()}"),
        (SLURM_STEP | {"SLURM_STEP_NUM_NODES": "1"}, "lagom-42"),
        (SLURM_STEP | {"LAGOM_DIR": "logs"}, f"logs/node-{socket.gethostname()}"),
        ({"LAGOM_JOB_ID": "7", "NCCL_HOSTID": "a"}, "lagom-7/node-a"),
        ({"LAGOM_JOB_ID": "7", "NCCL_HOSTID": "a", "LAGOM_DIR": "logs"}, "logs"),  # a benchmark looks there
    ],
)
def test_nodes_that_may_share_a_folder_have_one_each_in_it(environ: dict[str, str], folder: str) -> None:
    plan = plan_job(JobOptions(), environ, PLUGIN)
    assert plan.folder == Path(folder).absolute()
    assert plan.variables["LAGOM_DIR"] == str(plan.folder)
