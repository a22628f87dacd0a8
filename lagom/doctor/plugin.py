"""Are our libraries there, do they load, and do they export what NCCL and the plugin look for?"""

from __future__ import annotations

import ctypes
from pathlib import Path

from lagom.doctor.finding import Finding, Level
from lagom.doctor.values import interpreter_fault
from lagom.errors import LagomError
from lagom.settings import interpreter

AREA = "plugin"
TUNER_VERSIONS = range(2, 7)
PROFILER_VERSIONS = range(4, 8)
SYMBOLS = (
    *(f"ncclTunerPlugin_v{version}" for version in TUNER_VERSIONS),
    *(f"ncclProfiler_v{version}" for version in PROFILER_VERSIONS),
)
TIMELINE = "liblagom_timeline.so"
TIMELINE_SYMBOLS = ("lagom_timeline_attach", "lagom_timeline_detach", "InitializeInjection")
REBUILD = "build it again: `make native` in a clone, or `pip install --force-reinstall lagom`."


def examine() -> list[Finding]:
    """The plugin, liblagom, the kernel timeline, and the Python that a rank would start the controller with."""
    from lagom.wire.library import library, plugin_path

    try:
        path = plugin_path()
        library()
    except LagomError as error:
        return [Finding(Level.PROBLEM, AREA, str(error), REBUILD)]
    return [check_plugin(path), check_timeline(path.parent / TIMELINE), check_interpreter(path.parent)]


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


def check_interpreter(folder: Path) -> Finding:
    """The interpreter noted beside the plugin, for use without ``lagom run``."""
    file = folder / "python_path"
    noted = Path(file.read_text().strip()) if file.exists() else None
    if noted is None:
        text = "no Python is noted beside the plugin, so a rank cannot start the controller by itself"
        return Finding(Level.NOTE, AREA, text, f"run `lagom env` once, or export LAGOM_PYTHON={interpreter()}.")
    if not noted.exists():
        text = f"{noted}, noted beside the plugin for the controller, is gone"
        return Finding(Level.PROBLEM, AREA, text, f"run `lagom env` once, or export LAGOM_PYTHON={interpreter()}.")
    if fault := interpreter_fault(noted):
        text = f"a rank would not start the controller with {noted}, noted beside the plugin: {fault}"
        return Finding(Level.PROBLEM, AREA, text, "use `lagom run`, or export LAGOM_PYTHON=PATH of one that is safe.")
    return Finding(Level.OK, AREA, f"without `lagom run`, a rank starts the controller with {noted}")
