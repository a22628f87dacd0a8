# SPDX-License-Identifier: Apache-2.0
"""What ``make wheel`` made, for ``make test-wheel``: zig is 400 MB, so nothing here runs without being asked for."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EMULATED_LIBC = Path("/usr/aarch64-linux-gnu")


@pytest.fixture(scope="session")
def wheel_python() -> Path:
    """The interpreter whose environment has zig and auditwheel."""
    named = os.environ.get("LAGOM_TEST_WHEEL", "")
    if not named:
        pytest.skip("zig is 400 MB: `make test-wheel` builds the wheels and runs this")
    return Path(named)


@pytest.fixture(scope="session", params=["x86_64", "aarch64"])
def processor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def wheel(processor: str, wheel_python: Path) -> Path:
    (found,) = (ROOT / "dist").glob(f"lagom-*_{processor}.whl")
    return found


@pytest.fixture(scope="session")
def unpacked(wheel: Path, processor: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's package, and with the sources that the C tests read."""
    folder = tmp_path_factory.mktemp(processor)
    zipfile.ZipFile(wheel).extractall(folder)
    for name in ("csrc", "tests", "tuner_plugin"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(scope="session")
def libraries(unpacked: Path) -> list[Path]:
    found = sorted((unpacked / "lagom" / "_lib").glob("*.so"))
    assert len(found) == 3
    return found


@pytest.fixture(scope="session")
def zig(processor: str, wheel_python: Path) -> list[str]:
    """zig's C compiler, for the processor and the glibc of the wheel."""
    return [str(wheel_python), "-m", "ziglang", "cc", "-target", f"{processor}-linux-gnu.2.17"]


@pytest.fixture(scope="session")
def emulator(processor: str) -> list[str]:
    """What comes before a command that was built for the wheel's processor."""
    if processor == os.uname().machine:
        return []
    if processor != "aarch64" or shutil.which("qemu-aarch64") is None or not EMULATED_LIBC.exists():
        pytest.skip("no emulator with a libc for it: apt install qemu-user libc6-arm64-cross")
    return ["qemu-aarch64", "-L", str(EMULATED_LIBC)]
