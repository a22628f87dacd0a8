# SPDX-License-Identifier: Apache-2.0
"""Sentences of the log ``lagom.parallel``, each cause once in a process."""

from __future__ import annotations

import logging

log = logging.getLogger("lagom.parallel")
_said: set[str] = set()


def say_once(sentence: str, cause: str = "") -> None:
    """Warn, unless it was said before; ``cause``: what a sentence with other numbers has in common with this one."""
    if (cause or sentence) not in _said:
        _said.add(cause or sentence)
        log.warning(sentence)
