# SPDX-License-Identifier: Apache-2.0
"""Sentences of the log ``lagom.parallel``, each cause once in a process."""

from __future__ import annotations

import logging

log = logging.getLogger("lagom.parallel")
_said: set[str] = set()


def say_once(sentence: str) -> None:
    """Warn, unless the same sentence was said before."""
    if sentence not in _said:
        _said.add(sentence)
        log.warning(sentence)
