"""The whole examination, in the order a person would ask."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lagom.doctor import cupti, environment, libraries, memory, plugin
from lagom.doctor.finding import Finding


def examine(environ: Mapping[str, str] | None = None, *, clean: bool = False) -> list[Finding]:
    """Every finding of this machine and environment; ``clean`` also removes stale regions."""
    here = os.environ if environ is None else environ
    return [
        *plugin.examine(),
        *libraries.examine(here),
        *environment.examine(here),
        *cupti.examine(here),
        *memory.examine(here, clean=clean),
    ]
