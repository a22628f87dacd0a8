# SPDX-License-Identifier: Apache-2.0
"""The atlas: configs that earlier searches proved, for other jobs on the same kind of machine.

A saved config in the cache is for the same job (``lagom.config_cache``). The atlas reads the same files, and a list
that comes with the package, for jobs whose communicators are alike. What it knows is tried first and never trusted.
"""

from __future__ import annotations

from lagom.atlas.entry import AtlasEntry, Found, Key, key_of, nccl_release, size_class
from lagom.atlas.sources import Atlas, load_atlas

__all__ = ["Atlas", "AtlasEntry", "Found", "Key", "key_of", "load_atlas", "nccl_release", "size_class"]
