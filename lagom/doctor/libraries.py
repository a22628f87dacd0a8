# SPDX-License-Identifier: Apache-2.0
"""Which NCCL would a torch job load here, is it the only one, and what can be tuned with it?

The dynamic linker's order for torch: what LD_PRELOAD names, LD_LIBRARY_PATH, the wheel beside torch (its RUNPATH), the
system.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from lagom.doctor import Finding, Level
from lagom.doctor.nccl_versions import (
    Version,
    beyond_what_is_known,
    build_id_of,
    capabilities,
    is_known,
    parse_version,
    threads_known,
    version_from_code,
)
from lagom.format import format_version

LIBRARY = "libnccl.so.2"
AREA = "nccl"
ASK_VERSION = (
    "import ctypes, sys; v = ctypes.c_int(); r = ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); "
    "print(v.value); sys.exit(r)"
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A libnccl that could be loaded, and who says so."""

    path: Path
    source: str


def examine(installed: Installed) -> list[Finding]:
    """Which NCCL, from where, how many of them, and what it can do."""
    torch, candidates = installed.torch, installed.candidates
    findings = [*check_wheels(installed.wheels, torch), *check_several(candidates)]
    if torch is None:
        text = "torch is not installed in this environment"
        findings.append(Finding(Level.NOTE, AREA, text, "run lagom with the Python of the training job."))
    if not candidates:
        text = "no libnccl.so.2 is found, so there is nothing to tune here"
        remedy = "none needed for `lagom demo`; for a job, install torch with CUDA in this environment."
        return [*findings, Finding(Level.NOTE, AREA, text, remedy)]
    return [*findings, describe(candidates[0], installed.version)]


def describe(candidate: Candidate, version: Version | None) -> Finding:
    """The NCCL a job would load and what a plugin can do in it."""
    if version is None:
        text = f"{candidate.path} ({candidate.source}) does not load or does not say its version"
        return Finding(
            Level.PROBLEM, AREA, text, "reinstall the wheel it came from; on a partial copy NCCL itself will not start."
        )
    able = capabilities(version)
    text = (
        f"a torch job loads NCCL {format_version(version)} from {candidate.source} ({candidate.path}); {able.sentence}"
    )
    text += _about_the_build(candidate.path, version)
    if not able.online:
        remedy = (
            "take NCCL >= 2.28 (2.27 with both variables): a newer torch, or a newer nvidia-nccl wheel of its CUDA."
        )
        return Finding(Level.NOTE if able.replay else Level.PROBLEM, AREA, text, f"to tune, {remedy}")
    if beyond_what_is_known(version):
        remedy = "if the plugin is not loaded, run `make test-abi` in a clone and report what it says."
        return Finding(Level.NOTE, AREA, f"{text}; {beyond_what_is_known(version)}", remedy)
    if "chunk" not in able.knobs:
        remedy = "for chunk size too, take NCCL >= 2.30.3: the nvidia-nccl wheel of the same CUDA major, over torch's."
        return Finding(Level.NOTE, AREA, text, remedy)
    return Finding(Level.OK, AREA, text)


def _about_the_build(library: Path, version: Version) -> str:
    """Threads are set in NCCL's own memory: only in builds whose layout is known to the byte."""
    if not threads_known(version):
        return ""
    if is_known(version, build_id_of(library)):
        return ", and threads with LAGOM_NT=1"
    return "; no threads: this build is not NVIDIA's wheel, its layout is not known"


def check_wheels(wheels: list[Wheel], torch: Torch | None) -> list[Finding]:
    """Two wheels that overwrite each other, and a wheel that is not the one torch was built for."""
    findings = []
    if len({wheel.library.resolve() for wheel in wheels}) < len(wheels):
        owners = [str(wheel) for wheel in wheels if wheel.owns_file]
        file = (
            f"the file there is of {owners[0]}"
            if len(owners) == 1
            else "which of them the file belongs to is not known"
        )
        text = f"{' and '.join(map(str, wheels))} both install {wheels[0].library}: {file}"
        keep = torch.pinned_wheel if torch and torch.pinned_wheel else wheels[-1].name
        drop = " ".join(wheel.name for wheel in wheels if wheel.name != keep)
        remedy = f"pip uninstall {drop}, then pip install --force-reinstall --no-deps {keep}."
        findings.append(Finding(Level.PROBLEM, AREA, text, remedy))
    if torch and torch.pinned_wheel:
        findings += _check_pin(wheels, torch)
    return findings


def _check_pin(wheels: list[Wheel], torch: Torch) -> list[Finding]:
    """torch says which wheel it wants; a newer one of the same CUDA works, one of another CUDA major does not."""
    names = {wheel.name: wheel for wheel in wheels}
    wanted = f"torch {torch.version} asks for {torch.pinned_wheel} {torch.pinned_version}"
    if torch.pinned_wheel not in names:
        remedy = f"pip install {torch.pinned_wheel}=={torch.pinned_version}."
        return [Finding(Level.PROBLEM, AREA, f"{wanted}, which is not installed", remedy)]
    have = names[torch.pinned_wheel].version
    if have != torch.pinned_version:
        newer = (parse_version(have) or (0, 0, 0)) > (parse_version(torch.pinned_version) or (0, 0, 0))
        remedy = (
            "fine if you chose it (a newer NCCL of the same CUDA major works); "
            if newer
            else "an older NCCL than torch was built for may lack functions it calls; "
        )
        back = f"back: pip install {torch.pinned_wheel}=={torch.pinned_version}."
        return [Finding(Level.NOTE, AREA, f"{wanted}; installed is {have}", remedy + back)]
    return [Finding(Level.OK, AREA, f"{wanted}, and has it")]


def check_several(candidates: list[Candidate]) -> list[Finding]:
    """More than one libnccl in reach: say which wins, and how another would."""
    if len(candidates) < 2:
        return []
    first, others = candidates[0], candidates[1:]
    listed = "; ".join(f"{other.path} ({other.source})" for other in others)
    text = f"{len(candidates)} different libnccl are in reach; {first.path} ({first.source}) wins over {listed}"
    remedy = f"nothing, if that is the one you mean; LD_PRELOAD={others[0].path} in front of the job makes another win."
    return [Finding(Level.NOTE, AREA, text, remedy)]


def loadable(environ: Mapping[str, str], wheels: list[Wheel], torch: Torch | None = None) -> list[Candidate]:
    """Every distinct libnccl.so.2 in reach, in the order the dynamic linker would take them for torch."""
    preloaded, folders = environ.get("LD_PRELOAD", "").replace(":", " "), environ.get("LD_LIBRARY_PATH", "")
    of_wheels = [Candidate(wheel.library, str(wheel)) for wheel in wheels if wheel.owns_file]
    built_for_wheel = torch is None or bool(torch.pin)
    listed = [
        *(Candidate(Path(word), "LD_PRELOAD") for word in preloaded.split() if "libnccl.so" in word),
        *(of_wheels if built_for_wheel else []),
        *(Candidate(Path(folder, LIBRARY), "LD_LIBRARY_PATH") for folder in folders.split(":") if folder),
        *(Candidate(path, "the system") for path in system_libraries()),
        *of_wheels,
    ]
    distinct: dict[Path, Candidate] = {}
    for candidate in listed:
        if candidate.path.is_file():
            distinct.setdefault(candidate.path.resolve(), candidate)
    return list(distinct.values())


def system_libraries() -> list[Path]:
    """What ldconfig knows."""
    for tool in ("ldconfig", "/sbin/ldconfig"):
        try:
            listing = subprocess.run([tool, "-p"], capture_output=True, text=True, check=False, timeout=10).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        return [
            Path(line.split("=>")[1].strip()) for line in listing.splitlines() if f"{LIBRARY} " in line and "=>" in line
        ]
    return []


def library_version(path: Path) -> Version | None:
    """Asks the library itself, in a process of its own: loading 300 MB of somebody else's code is not for this one."""
    try:
        asked = subprocess.run(
            [sys.executable, "-I", "-c", ASK_VERSION, str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    code = asked.stdout.strip()
    return version_from_code(int(code)) if asked.returncode == 0 and code.isdigit() and int(code) > 0 else None


def find_nccl(environ: Mapping[str, str]) -> int:
    """Version code of the NCCL that a torch job would load in this environment; 0 where there is none."""
    return find_installed(environ).code


def has_nccl(environ: Mapping[str, str]) -> bool:
    """Whether there is one for a torch job in this environment, of whatever version. A job may bring its own."""
    return bool(loadable(environ, nccl_wheels(), find_torch()))


# -- NCCL as pip sees it. nvidia-nccl-cu12 and nvidia-nccl-cu13 install the same file, nvidia/nccl/lib/libnccl.so.2; the
# last one installed wins and pip prints no warning. The size in each wheel's RECORD shows whose file it is.


@dataclass(frozen=True, slots=True)
class Wheel:
    """An installed NCCL wheel. ``size`` is what its RECORD says of the library; None if it does not."""

    name: str
    version: str
    library: Path
    size: int | None

    @property
    def owns_file(self) -> bool:
        """Whether the library that lies there is this wheel's."""
        return self.library.is_file() and (self.size is None or self.library.stat().st_size == self.size)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class Torch:
    """torch as installed. ``pin`` is its requirement on NCCL, empty if it brings its own or has none."""

    version: str
    pin: str
    folder: Path | None

    @property
    def pinned_wheel(self) -> str:
        """``nvidia-nccl-cu12`` of ``nvidia-nccl-cu12==2.27.5; platform_system == ...``."""
        return self.pin.split(";")[0].split("==")[0].strip()

    @property
    def pinned_version(self) -> str:
        """``2.27.5`` of the same."""
        return self.pin.split(";")[0].partition("==")[2].strip()


@dataclass(frozen=True, slots=True)
class Installed:
    """What is there of torch and NCCL. ``version``: of the first candidate; None = none, or it does not say."""

    torch: Torch | None
    wheels: list[Wheel]
    candidates: list[Candidate]
    version: Version | None

    @property
    def code(self) -> int:
        """The version as ``ncclGetVersion`` says it; 0 = not known."""
        major, minor, patch = self.version or (0, 0, 0)
        return major * 10000 + minor * 100 + patch


def find_installed(environ: Mapping[str, str], path: list[str] | None = None) -> Installed:
    """``path`` as sys.path, for tests."""
    torch, wheels = find_torch(path), nccl_wheels(path)
    candidates = loadable(environ, wheels, torch)
    return Installed(torch, wheels, candidates, library_version(candidates[0].path) if candidates else None)


def nccl_wheels(path: list[str] | None = None) -> list[Wheel]:
    """Every installed wheel that brings libnccl.so.2. ``path`` as sys.path, for tests."""
    found: dict[str, Wheel] = {}
    for distribution in _distributions(path):
        name = _name(distribution)
        if not name.startswith("nvidia-nccl-"):
            continue
        for file in distribution.files or ():
            if file.name == LIBRARY:
                found.setdefault(name, Wheel(name, distribution.version, Path(str(file.locate())), file.size))
    return [found[name] for name in sorted(found)]


def find_torch(path: list[str] | None = None) -> Torch | None:
    """torch's metadata, without importing it."""
    for distribution in _distributions(path):
        if _name(distribution) == "torch":
            pins = [
                need for need in distribution.requires or () if need.startswith("nvidia-nccl-") and "extra" not in need
            ]
            folder = Path(str(distribution.locate_file("torch")))
            return Torch(distribution.version, pins[0] if pins else "", folder if folder.is_dir() else None)
    return None


def _distributions(path: list[str] | None) -> list[metadata.Distribution]:
    return list(metadata.distributions() if path is None else metadata.distributions(path=path))


def _name(distribution: metadata.Distribution) -> str:
    return (distribution.metadata["Name"] or "").lower().replace("_", "-")
