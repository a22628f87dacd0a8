# SPDX-License-Identifier: Apache-2.0
"""Where the atlas is read from: the list that comes with the package, and the saved configs in this user's cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from lagom.atlas.entries_of_config import entries_of
from lagom.atlas.entry import AtlasEntry
from lagom.config_cache import CachedConfig, ConfigCache
from lagom.config_file import load_config
from lagom.errors import LagomError
from lagom.settings import cache_folder, read

#: Written by ``python -m benchmarks.atlas`` from the results that the repository keeps.
SHIPPED = Path(__file__).with_name("shipped.json")
ENTRIES = TypeAdapter(tuple[AtlasEntry, ...])
MOST_READ = 200  # of the newest files of the cache: the controller reads them before the job's first call


@dataclass(frozen=True, slots=True)
class Atlas:
    """``is_off``: by LAGOM_ATLAS. ``problem``: why the user's cache could not be read; empty = it could."""

    shipped: tuple[AtlasEntry, ...] = ()
    own: tuple[AtlasEntry, ...] = ()
    is_off: bool = False
    problem: str = ""

    @property
    def entries(self) -> tuple[AtlasEntry, ...]:
        """All of them, the user's own first."""
        return (*self.own, *self.shipped)


def load_atlas(environ: Mapping[str, str]) -> Atlas:
    """The atlas of a process with these variables; empty where LAGOM_ATLAS is off. Nothing here raises."""
    if read("LAGOM_ATLAS", environ) == "off":
        return Atlas(is_off=True)
    folder = cache_folder(environ)
    if folder is None:
        return Atlas(read_shipped())
    try:
        configs = ConfigCache(folder).everything(MOST_READ).configs
    except (OSError, LagomError) as error:
        return Atlas(read_shipped(), problem=str(error))
    return Atlas(read_shipped(), tuple(entry for config in configs for entry in _entries_in(config)))


def read_shipped() -> tuple[AtlasEntry, ...]:
    """The list of the package."""
    return ENTRIES.validate_json(SHIPPED.read_text())


def _entries_in(config: CachedConfig) -> Iterator[AtlasEntry]:
    """One that cannot be read has no entries: `lagom run` says so when the job it is for is started."""
    try:
        yield from entries_of(load_config(config.path), config.origin)
    except (OSError, LagomError):
        return
