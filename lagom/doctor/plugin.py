# SPDX-License-Identifier: Apache-2.0
"""Are our libraries there, do they load, and do they export what NCCL and the plugin look for? Is there a CUPTI?"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from lagom.doctor import Finding, Level
from lagom.errors import LagomError
from lagom.settings import interpreter, read

AREA, CUPTI_AREA = "plugin", "cupti"
TUNER_VERSIONS = range(2, 7)
PROFILER_VERSIONS = range(4, 8)
SYMBOLS = (
    *(f"ncclTunerPlugin_v{version}" for version in TUNER_VERSIONS),
    *(f"ncclProfiler_v{version}" for version in PROFILER_VERSIONS),
)
TIMELINE = "liblagom_timeline.so"
TIMELINE_SYMBOLS = ("lagom_timeline_attach", "lagom_timeline_detach", "InitializeInjection")
REBUILD = "build it again: `make native` in a clone, or `pip install --force-reinstall` with the wheel's file."


def examine(environ: Mapping[str, str]) -> list[Finding]:
    """The plugin, liblagom, the kernel timeline, and the Python that a rank would start the controller with."""
    from lagom.wire.library import library, plugin_path

    try:
        path = plugin_path()
        library()
    except LagomError as error:
        return [Finding(Level.PROBLEM, AREA, str(error), REBUILD)]
    findings = [check_plugin(path), check_timeline(path.parent / TIMELINE)]
    # `variables` checks a LAGOM_PYTHON that is set
    return findings if read("LAGOM_PYTHON", environ) else [*findings, check_interpreter()]


def check_plugin(path: Path) -> Finding:
    """Loads the plugin as NCCL would and looks every symbol up."""
    fault = library_fault(path, SYMBOLS)
    if fault:
        return Finding(Level.PROBLEM, AREA, fault, REBUILD)
    return Finding(Level.OK, AREA, f"{path} loads; tuner API v2-v6, profiler API v4-v7")


def check_timeline(path: Path) -> Finding:
    """The library that records kernels; without it tuning goes by NCCL's own events and the clock."""
    fault = library_fault(path, TIMELINE_SYMBOLS)
    if fault:
        return Finding(Level.NOTE, AREA, f"no kernel timelines: {fault}", REBUILD)
    return Finding(Level.OK, AREA, f"{path} loads; it records kernels where CUPTI is")


def library_fault(path: Path, symbols: tuple[str, ...]) -> str:
    """Why a library of ours cannot be used; empty if it can."""
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        return f"{path} does not load: {error}"
    missing = [symbol for symbol in symbols if not hasattr(loaded, symbol)]
    return f"{path} lacks {', '.join(missing)}" if missing else ""


def check_interpreter() -> Finding:
    """What a rank finds by itself, where neither `lagom run` nor `lagom env` names the interpreter."""
    from lagom.wire.library import python_of_ranks

    python, fault = python_of_ranks()
    if fault:
        text = f"where LAGOM_PYTHON is not set, a rank cannot start the controller: {fault}"
        remedy = f"use `lagom run` or `lagom env`, or export LAGOM_PYTHON={interpreter()}."
        return Finding(Level.NOTE, AREA, text, remedy)
    return Finding(Level.OK, AREA, f"where LAGOM_PYTHON is not set, a rank starts the controller with {python}")


# -- CUPTI, for kernel timelines


def examine_cupti(environ: Mapping[str, str], path: list[str] | None = None) -> list[Finding]:
    """Where libcupti is, and who is ahead of us."""
    found = [*wheel_libraries(path), *toolkit_libraries(environ)]
    findings = [
        Finding(Level.OK, CUPTI_AREA, f"{found[0]} (first of {len(found)})")
        if found
        else Finding(
            Level.NOTE,
            CUPTI_AREA,
            "no libcupti is found: no kernel timelines, tuning goes by iteration time alone",
            "it comes with torch's CUDA wheels (nvidia-cuda-cupti) and with the CUDA toolkit.",
        )
    ]
    injected = environ.get("CUDA_INJECTION64_PATH", "")
    if injected and "lagom" not in Path(injected).name:
        text = f"CUDA_INJECTION64_PATH={injected}: another tool (nsys?) takes CUPTI first"
        findings.append(
            Finding(Level.NOTE, CUPTI_AREA, text, "lagom yields to it; run without that tool for kernel timelines.")
        )
    return findings


def wheel_libraries(path: list[str] | None = None) -> list[Path]:
    """libcupti of installed wheels."""
    distributions = metadata.distributions() if path is None else metadata.distributions(path=path)
    files = (
        Path(str(file.locate()))
        for distribution in distributions
        if (distribution.metadata["Name"] or "")
        .lower()
        .replace("_", "-")
        .startswith(("nvidia-cuda-cupti", "nvidia-cuda-runtime"))
        for file in distribution.files or ()
        if file.name.startswith("libcupti.so")
    )
    return sorted({file for file in files if file.is_file()})


def toolkit_libraries(environ: Mapping[str, str]) -> list[Path]:
    """libcupti of CUDA toolkits in their usual places."""
    homes = [environ.get("CUDA_HOME", ""), environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    folders = [Path(home, *below) for home in homes if home for below in (("extras", "CUPTI", "lib64"), ("lib64",))]
    return sorted({Path(os.path.realpath(file)) for folder in folders for file in folder.glob("libcupti.so*")})
