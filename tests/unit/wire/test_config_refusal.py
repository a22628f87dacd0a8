# SPDX-License-Identifier: Apache-2.0
"""Why a saved config is not used: the plugin's causes and words, as Python reads them."""

from __future__ import annotations

from typing import get_args

import pytest

from lagom.wire.config_refusal import Cause, ConfigRefusal, refusal_of
from lagom.wire.layout import ffi
from lagom.wire.library import library

#: Of ``enum lagom_saved_config``.
CONSTANTS = {
    "unreadable": "UNREADABLE",
    "ranks": "OTHER_RANKS",
    "nodes": "OTHER_NODES",
    "nccl": "OTHER_NCCL",
    "gpu": "OTHER_GPU",
    "peer_access": "OTHER_PEER_ACCESS",
    "setting": "OTHER_SETTING",
    "simulated": "SIMULATED",
}


@pytest.mark.parametrize(("cause", "name"), CONSTANTS.items())
def test_every_cause_of_the_plugin_is_one_of_ours(cause: str, name: str) -> None:
    fields = ffi.new("struct lagom_refusal *", {"setting": b"NAME", "wanted": b"2", "here": b"4"})
    state = getattr(library(), f"LAGOM_SAVED_CONFIG_{name}")
    assert refusal_of(state, fields) == ConfigRefusal(cause, "2", "4", "NAME")  # type: ignore[arg-type]


def test_what_is_no_refusal_is_none_and_garbage_is_none() -> None:
    fields = ffi.new("struct lagom_refusal *", {"wanted": b"\xff" * 64})
    states = library()
    for state in (states.LAGOM_SAVED_CONFIG_NONE, states.LAGOM_SAVED_CONFIG_FITS, 10, 0xFFFFFFFF):
        assert refusal_of(state, fields) is None
    refusal = refusal_of(states.LAGOM_SAVED_CONFIG_OTHER_GPU, fields)
    assert refusal is not None
    assert "this GPU is not known" in refusal.clause


@pytest.mark.parametrize("cause", get_args(Cause))
def test_every_cause_has_words_of_one_line_whatever_the_fields_hold(cause: Cause) -> None:
    for text in ("", "2", "é" * 500, "%s%n"):
        clause = ConfigRefusal(cause, text, text, text).clause
        assert clause
        assert "\n" not in clause
