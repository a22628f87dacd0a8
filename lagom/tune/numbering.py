# SPDX-License-Identifier: Apache-2.0
"""Every process of a search has a number, for a folder of its own: `{trial}` in its command, LAGOM_TRIAL."""

from __future__ import annotations

from dataclasses import replace

from lagom.config_cache import PLACEHOLDER
from lagom.experiment.request import Request

TRIAL = "LAGOM_TRIAL"


def numbered(request: Request, number: int) -> Request:
    """The request of one process."""
    command = tuple(word.replace(PLACEHOLDER, str(number)) for word in request.command)
    return replace(request, command=command, environ={**request.environ, TRIAL: str(number)})
