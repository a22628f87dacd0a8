"""NCCL as pip sees it: which wheels are installed, which one's file is really there, what torch asks for.

``nvidia-nccl-cu12`` and ``nvidia-nccl-cu13`` install the same file, nvidia/nccl/lib/libnccl.so.2; the last one
installed wins and pip says nothing. The size in each wheel's RECORD tells whose file it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

LIBRARY = "libnccl.so.2"


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


def torch_here(path: list[str] | None = None) -> Torch | None:
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
