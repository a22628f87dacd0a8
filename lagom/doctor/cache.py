# SPDX-License-Identifier: Apache-2.0
"""The saved configs that `lagom run` would replay by itself: where they are, how many, and whether they can be used."""

from __future__ import annotations

from collections.abc import Mapping

from lagom.config_cache import CacheRefused, ConfigCache
from lagom.doctor import Finding, Level
from lagom.format import format_count
from lagom.settings import cache_folder

AREA = "cached configs"


def examine(environ: Mapping[str, str]) -> list[Finding]:
    """One finding."""
    folder = cache_folder(environ)
    if folder is None:
        return [Finding(Level.OK, AREA, "off (LAGOM_CACHE), or this user has no home: every job is tuned anew")]
    cache = ConfigCache(folder)
    try:
        cache.check()
        return [Finding(Level.OK, AREA, f"{format_count(cache.count(), 'config')} of tuned jobs in {folder}")]
    except CacheRefused as error:
        text, remedy = str(error).rstrip("."), f"remove {folder}, or chmod -R go-w it if you trust its content."
    except OSError as error:
        text, remedy = f"{folder} cannot be used ({error.strerror})", "set LAGOM_CACHE to a folder of yours, or to off."
    return [Finding(Level.NOTE, AREA, text, remedy)]
