# SPDX-License-Identifier: Apache-2.0
"""Which files belong to which area, and which tests are asked, the cheapest first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NATIVE = "tests/native/test_native.py"


@dataclass(frozen=True)
class Stage:
    """One run of pytest."""

    arguments: tuple[str, ...]
    library: bool = False  # lagom/_lib is built first
    processes: bool = False  # real processes: a failure counts when it comes twice
    sanitize: str = ""


@dataclass(frozen=True)
class Area:
    """A part of the code."""

    name: str
    files: tuple[str, ...]  # glob patterns
    native: str = ""  # of the programs' names, for pytest -k
    unit: tuple[str, ...] = ()
    system: tuple[str, ...] = ()


SYSTEM = "tests/system/test_"
AREAS = (
    Area(
        "csrc/agreement",
        ("csrc/agreement/*.c",),
        "agreement_ or plugin_replay or plugin_storm",
        ("tests/unit/wire", "tests/unit/controller/test_publication.py"),
        (f"{SYSTEM}replay_agreement.py", f"{SYSTEM}dead_controller.py"),
    ),
    Area(
        "csrc/plan",
        ("csrc/plan/*.c",),
        "plan_ or agreement_switch or agreement_replay or plugin_decide",
        ("tests/unit/wire", "tests/unit/controller/test_publication.py"),
        (f"{SYSTEM}dead_controller.py", f"{SYSTEM}replay_agreement.py"),
    ),
    Area(
        "csrc/shm",
        ("csrc/shm/*.c",),
        "shm_ or plugin_life or plugin_many",
        ("tests/unit/wire", "tests/unit/launch/test_job_plan.py"),
        (f"{SYSTEM}other_users.py", f"{SYSTEM}dead_controller.py"),
    ),
    Area(
        "csrc/timeline",
        ("csrc/timeline/*.c",),
        "timeline_ or plugin_gpu_times or plugin_spans",
        ("tests/unit/timeline/test_ring_records.py", "tests/unit/controller/test_timeline_control.py"),
        ("tests/contract/test_cupti.py", "tests/contract/test_clocks.py"),
    ),
    Area(
        "tuner_plugin",
        tuple(
            f"tuner_plugin/{name}"
            for name in (
                "decide.c",
                "apply.h",
                "chunk.c",
                "measured.c",
                "spans.c",
                "headroom.c",
                "static_rules.c",
                "cost_table.h",
            )
        ),
        "plugin_",
        ("tests/contract/test_abi.py", "tests/unit/convert/test_rule_coverage.py"),
        (f"{SYSTEM}size_rules.py", f"{SYSTEM}headroom.py"),
    ),
    Area(
        "tuner_plugin/start",
        tuple(
            f"tuner_plugin/{name}.c"
            for name in (
                "adopter",
                "caller",
                "comm_create",
                "exports",
                "folder",
                "job",
                "log",
                "message_stream",
                "plugin",
                "settings",
                "spawn",
                "threads",
            )
        ),
        "plugin_ or shm_inherited",
        ("tests/unit/plugin", "tests/contract/test_abi.py"),
        tuple(f"{SYSTEM}{name}.py" for name in ("first_contact", "user_paths", "surroundings", "life_cycle")),
    ),
    Area(
        "tuner_plugin/profiler",
        tuple(
            f"tuner_plugin/{name}.c"
            for name in (
                "build",
                "built_channels",
                "call_clock",
                "call_recorder",
                "capture_client",
                "event_mask",
                "event_words",
                "gpu_times",
                "hardware",
                "launch_order",
                "profiler",
            )
        ),
        "plugin_ or timeline_",
        ("tests/contract/test_abi.py", "tests/unit/timeline/test_ring_records.py"),
        tuple(f"{SYSTEM}{name}.py" for name in ("profile_job", "truth")),
    ),
    Area(
        "csrc/config",
        ("csrc/config/*.c",),
        "config_ or plugin_replay or plugin_static_rules or plugin_headroom or plugin_abi",
        ("tests/unit/test_config_file.py", "tests/unit/convert", "tests/fuzz/test_fuzz.py"),
        (f"{SYSTEM}size_rules.py", f"{SYSTEM}user_paths.py"),
    ),
    Area(
        "lagom/search",
        ("lagom/search/*.py", "lagom/search/strategies/*.py"),
        unit=("tests/unit/search", "tests/unit/cost/test_guided.py"),
    ),
    Area(
        "lagom/controller",
        ("lagom/controller/*.py",),
        unit=("tests/unit/controller", "tests/unit/report/test_tuning_kernels.py"),
        system=tuple(f"{SYSTEM}{name}.py" for name in ("user_paths", "communicators", "quiet", "end_to_end")),
    ),
    Area(
        "lagom/program",
        ("lagom/program/*.py",),
        unit=("tests/unit/program", "tests/unit/controller/test_learning.py"),
        system=(f"{SYSTEM}irregular.py",),
    ),
    Area(
        "lagom/wire",
        ("lagom/wire/*.py",),
        unit=("tests/unit/wire", "tests/contract/test_layout.py", "tests/unit/controller", "tests/unit/watch"),
        system=(f"{SYSTEM}dead_controller.py", f"{SYSTEM}life_cycle.py"),
    ),
    Area("lagom/cost", ("lagom/cost/*.py",), unit=("tests/unit/cost", "tests/unit/search/test_on_simulator.py")),
    Area(
        "lagom/timeline",
        ("lagom/timeline/*.py",),
        unit=(
            "tests/unit/timeline",
            "tests/unit/controller/test_measure.py",
            "tests/unit/report/test_profile_json.py",
            "tests/unit/report/test_tuning_kernels.py",
        ),
    ),
    Area(
        "lagom/journal",
        ("lagom/journal/*.py",),
        unit=("tests/unit/journal", "tests/unit/watch", "tests/unit/report", "tests/unit/demo"),
    ),
    Area(
        "lagom/launch",
        ("lagom/launch/*.py",),
        unit=("tests/unit/launch", "tests/unit/test_config_cache.py"),
        system=tuple(f"{SYSTEM}{name}.py" for name in ("first_contact", "user_paths", "cached_start")),
    ),
    Area("lagom/nodes", ("lagom/nodes/*.py",), unit=("tests/unit/nodes",), system=(f"{SYSTEM}nodes_killed.py",)),
    Area("lagom/start", ("lagom/start/*.py",), unit=("tests/unit/start", "tests/unit/launch", "tests/unit/tune")),
    Area("lagom/tune", ("lagom/tune/*.py",), unit=("tests/unit/tune",), system=(f"{SYSTEM}tune.py",)),
    Area(
        "lagom/bench",
        ("lagom/bench/*.py",),
        unit=(
            "tests/unit/bench",
            "tests/unit/launch/test_cached_config.py",
            "tests/unit/report/test_advice.py",
            "tests/unit/tune/test_tune_result.py",
            "tests/unit/tune/test_course.py",
        ),
        system=(f"{SYSTEM}bench.py",),
    ),
    Area("lagom/report", ("lagom/report/*.py",), unit=("tests/unit/report",), system=(f"{SYSTEM}profile_job.py",)),
    Area(
        "lagom/cli",
        ("lagom/cli/*.py",),
        unit=(
            "tests/unit/doctor/test_machine_verdict.py",
            "tests/unit/report/test_run_text.py",
            "tests/unit/cli",
            "tests/contract/test_readme_commands.py",
            "tests/unit/report/test_profile_report.py",
        ),
        system=tuple(f"{SYSTEM}{name}.py" for name in ("watch", "user_paths", "bench", "tune")),
    ),
    Area(
        "lagom/watch",
        ("lagom/watch/*.py",),
        unit=("tests/unit/watch", "tests/unit/cli/test_watch.py"),
        system=(f"{SYSTEM}watch.py",),
    ),
    Area(
        "lagom/atlas",
        ("lagom/atlas/*.py",),
        unit=("tests/unit/atlas", "tests/unit/controller/test_candidates.py"),
        system=(f"{SYSTEM}cached_start.py",),
    ),
    Area(
        "lagom/config_cache",
        ("lagom/config_cache.py",),
        unit=(
            "tests/unit/test_config_cache.py",
            "tests/unit/launch/test_cached_config.py",
            "tests/unit/atlas/test_sources.py",
        ),
        system=(f"{SYSTEM}cached_start.py",),
    ),
)


def areas_named(names: str) -> tuple[Area, ...]:
    """The areas of names with commas between them; all of them for none. Raises ValueError for an unknown one."""
    known = {area.name: area for area in AREAS}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"no area is called {', '.join(unknown)}; the areas are: {', '.join(known)}.")
    return tuple(area for area in AREAS if area.name in wanted or not wanted)


def area_of(path: str) -> Area:
    """The area a file is in."""
    return next(area for area in AREAS if any(Path(path).match(pattern) for pattern in area.files))


def existing(paths: tuple[str, ...]) -> tuple[str, ...]:
    """The tests that were named. Raises ValueError where one does not exist: without it more faults would survive."""
    if gone := [path for path in paths if not (ROOT / path).exists()]:
        raise ValueError(f"tests/mutants/areas.py names tests that do not exist: {', '.join(gone)}")
    return paths


def mirrored(area: Area, path: str) -> tuple[str, ...]:
    """The test file that has the name of a Python file, where there is one."""
    found = f"tests/unit/{area.name.partition('/')[2]}/test_{Path(path).stem}.py"
    return (found,) if (ROOT / found).exists() else ()


def stages(path: str, operator: str) -> list[Stage]:
    """What is run for a fault in ``path`` until one fails."""
    area = area_of(path)
    if path.startswith("lagom/"):
        first = mirrored(area, path)
        found = [Stage(first)] if first else []
        found.append(Stage(existing(area.unit) + tuple(f"--deselect={test}" for test in first)))
    else:
        # Some programs are linked with the objects, others load what lies in lagom/_lib.
        found = [Stage((NATIVE, "-k", f"test_program and ({area.native})"), library=True)]
        if operator == "weaker ordering":
            found.append(Stage(existing(("tests/memory_model",))))
        found.append(Stage(existing(area.unit), library=True))
        # As `make test` does; last of the cheap ones, because everything is compiled anew.
        found += [Stage(found[0].arguments, sanitize=way) for way in ("thread", "address,undefined")]
    if area.system:
        found.append(Stage(existing(area.system), processes=True, library=not path.startswith("lagom/")))
    return found
