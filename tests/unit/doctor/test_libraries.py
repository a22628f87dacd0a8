# SPDX-License-Identifier: Apache-2.0
"""Which NCCL a job would load: wheels, clashes, torch's pin, the linker's order; with small fakes built by gcc."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lagom.doctor import Finding, Level, libraries
from lagom.doctor.libraries import find_torch, nccl_wheels
from lagom.doctor.nccl_versions import known_builds


@pytest.fixture(autouse=True)
def no_system_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine has installed shall not matter."""
    monkeypatch.setattr(libraries, "system_libraries", list)


def build_nccl(path: Path, code: int, *flags: str) -> Path:
    """A library that answers ncclGetVersion."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = f"int ncclGetVersion(int *version) {{ *version = {code}; return 0; }}"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", *flags, "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def install(site: Path, name: str, version: str, *, requires: str = "", library: bool = False) -> None:
    """A distribution as pip leaves it: metadata, and a RECORD with the size of its library as it is now."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    need = f"Requires-Dist: {requires}\n" if requires else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{need}")
    file = "nvidia/nccl/lib/libnccl.so.2"
    (info / "RECORD").write_text(f"{file},sha256=x,{(site / file).stat().st_size}\n" if library else "")


def install_nccl(site: Path, name: str, version: str) -> None:
    """An NCCL wheel: overwrites the file of any other, as pip does."""
    major, minor, patch = map(int, version.split("."))
    library = build_nccl(site / "nvidia/nccl/lib/libnccl.so.2", major * 10000 + minor * 100 + patch)
    library.write_bytes(library.read_bytes() + b"\0" * len(list(site.iterdir())))  # wheels differ in size
    install(site, name, version, library=True)


def examine(site: Path, environ: dict[str, str] | None = None) -> list[Finding]:
    return libraries.examine(libraries.find_installed(environ or {}, [str(site)]))


def problems(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings if finding.level is Level.PROBLEM]


def test_nothing_installed_is_a_note_and_says_what_to_do(tmp_path: Path) -> None:
    findings = examine(tmp_path)
    assert [finding.level for finding in findings] == [Level.NOTE, Level.NOTE]
    assert all(finding.remedy for finding in findings)


def test_torch_with_the_nccl_it_asks_for(tmp_path: Path) -> None:
    install_nccl(tmp_path, "nvidia-nccl-cu13", "2.30.7")
    install(tmp_path, "torch", "2.14.0", requires='nvidia-nccl-cu13==2.30.7; platform_system == "Linux"')
    findings = examine(tmp_path)
    assert [finding.level for finding in findings] == [Level.OK, Level.OK]
    assert "torch 2.14.0 asks for nvidia-nccl-cu13 2.30.7, and has it" in findings[0].text
    assert "a torch job loads NCCL 2.30.7 from nvidia-nccl-cu13 2.30.7" in findings[1].text
    assert "chunk" in findings[1].text


def test_cu12_and_cu13_over_each_other_are_named_with_the_owner_of_the_file(tmp_path: Path) -> None:
    install_nccl(tmp_path, "nvidia-nccl-cu12", "2.27.5")
    install_nccl(tmp_path, "nvidia-nccl-cu13", "2.30.7")
    install(tmp_path, "torch", "2.10.0", requires="nvidia-nccl-cu12==2.27.5")
    (clash,) = [finding for finding in examine(tmp_path) if "both install" in finding.text]
    assert clash.level is Level.PROBLEM
    assert "the file there is of nvidia-nccl-cu13 2.30.7" in clash.text
    assert clash.remedy.startswith(
        "pip uninstall nvidia-nccl-cu13, then pip install --force-reinstall --no-deps nvidia-nccl-cu12"
    )


def test_another_version_than_torch_asks_for_is_a_note(tmp_path: Path) -> None:
    install_nccl(tmp_path, "nvidia-nccl-cu12", "2.30.7")
    install(tmp_path, "torch", "2.13.0", requires="nvidia-nccl-cu12==2.29.7")
    (note,) = [finding for finding in examine(tmp_path) if "installed is" in finding.text]
    assert note.level is Level.NOTE
    assert "fine if you chose it" in note.remedy


def test_a_missing_wheel_is_a_problem(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.10.0", requires="nvidia-nccl-cu12==2.27.5")
    assert "which is not installed" in problems(examine(tmp_path))[0]


def test_a_wheel_wins_over_ld_library_path_where_torch_was_built_for_it(tmp_path: Path) -> None:
    site, other = tmp_path / "site", tmp_path / "other"
    install_nccl(site, "nvidia-nccl-cu12", "2.29.7")
    build_nccl(other / "libnccl.so.2", 23007)
    install(site, "torch", "2.13.0", requires="nvidia-nccl-cu12==2.29.7")
    findings = examine(site, {"LD_LIBRARY_PATH": f"/nowhere:{other}"})
    (several,) = [finding for finding in findings if "2 different libnccl are in reach" in finding.text]
    assert several.level is Level.NOTE
    assert f"LD_PRELOAD={other / 'libnccl.so.2'}" in several.remedy
    assert "loads NCCL 2.29.7 from nvidia-nccl-cu12" in findings[-1].text


def test_ld_library_path_wins_where_torch_was_built_for_another_nccl(tmp_path: Path) -> None:
    site, other = tmp_path / "site", tmp_path / "other"
    install_nccl(site, "nvidia-nccl-cu12", "2.29.7")
    build_nccl(other / "libnccl.so.2", 23007)
    install(site, "torch", "2.13.0a0+nv26")
    findings = examine(site, {"LD_LIBRARY_PATH": str(other)})
    assert "loads NCCL 2.30.7 from LD_LIBRARY_PATH" in findings[-1].text


def test_a_preloaded_nccl_comes_first(tmp_path: Path) -> None:
    preloaded = build_nccl(tmp_path / "libnccl.so.2.28.9", 22809)
    candidates = libraries.loadable({"LD_PRELOAD": f"/lib/x.so {preloaded}"}, [])
    assert [(c.path, c.source) for c in candidates] == [(preloaded, "LD_PRELOAD")]


def test_a_library_that_does_not_load_is_a_problem(tmp_path: Path) -> None:
    broken = tmp_path / "libnccl.so.2"
    broken.write_bytes(b"\x7fELF half a download")
    assert "does not load" in problems(examine(tmp_path, {"LD_LIBRARY_PATH": str(tmp_path)}))[0]


@pytest.mark.parametrize(
    ("version", "level", "words"),
    [
        ("2.18.3", Level.PROBLEM, "too old for lagom's plugin"),
        ("2.21.5", Level.NOTE, "can set algorithm, protocol, channels (algorithm and protocol: ring,"),
        ("2.23.4", Level.NOTE, "tuner API v3: it gives no communicator id"),
        ("2.26.2", Level.NOTE, "size rules can be replayed"),
        ("2.27.5", Level.NOTE, "if NCCL_PROFILER_PLUGIN names the plugin too"),
        (
            "2.28.9",
            Level.NOTE,
            "tunes a running job; can set algorithm, protocol, channels; no threads: this build is not NVIDIA's wheel",
        ),
        (
            "2.30.3",
            Level.OK,
            "tuner API v6, profiler API v6: tunes a running job; can set algorithm, protocol, channels, chunk",
        ),
        ("2.29.7", Level.NOTE, "no more than are known to be built"),
        ("2.32.3", Level.OK, "tuner API v6, profiler API v7"),
        ("2.32.6", Level.NOTE, "newer than 2.32.3, the last release lagom was compared with"),
    ],
)
def test_what_each_nccl_can_do(tmp_path: Path, version: str, level: Level, words: str) -> None:
    install_nccl(tmp_path, "nvidia-nccl-cu12", version)
    finding = examine(tmp_path)[-1]
    assert finding.level is level
    assert words in finding.text


def test_nvidias_own_build_is_recognised(tmp_path: Path) -> None:
    (build,) = (b for b in known_builds() if (b.version, b.wheel, b.machine) == ((2, 28, 9), "cu13", "x86_64"))
    library = build_nccl(tmp_path / "libnccl.so.2", 22809, f"-Wl,--build-id=0x{build.build_id}")
    finding = libraries.describe(libraries.Candidate(library, "LD_PRELOAD"), build.version)
    assert "and threads with LAGOM_NT=1" in finding.text


def test_extras_of_torch_are_no_pin(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.10.0", requires='nvidia-nccl-cu12==2.27.5; extra == "cuda"')
    torch = find_torch([str(tmp_path)])
    assert torch is not None
    assert torch.pin == ""
    assert nccl_wheels([str(tmp_path)]) == []


def test_a_library_is_asked_without_the_modules_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may be allowed to write there."""
    library = build_nccl(tmp_path / "libnccl.so.2", 22809)
    (tmp_path / "ctypes.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    assert libraries.library_version(library) == (2, 28, 9)
    assert not (tmp_path / "executed").exists()
