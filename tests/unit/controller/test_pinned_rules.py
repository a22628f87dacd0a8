# SPDX-License-Identifier: Apache-2.0
"""Configs by hand, as far as they can be set here."""

from __future__ import annotations

from lagom.controller.pinned_rules import left_out, settable, settable_rules
from lagom.records import CommConfig, Function, Knobs
from lagom.wire.plan import Rule

ASKED = CommConfig(channels=4, chunk_bytes=512 << 10, threads=256)


def test_what_can_be_set_is_kept_and_the_rest_left_out() -> None:
    assert settable(ASKED, Knobs(threads=True)) == ASKED
    assert settable(ASKED, Knobs(threads=False)) == CommConfig(channels=4, chunk_bytes=512 << 10)
    assert settable(ASKED, Knobs(threads=False, chunk=False)) == CommConfig(channels=4)


def test_rules_keep_their_bounds() -> None:
    rule = Rule(Function.ALL_GATHER, 1, 2, ASKED)
    assert settable_rules([rule], Knobs()) == (Rule(Function.ALL_GATHER, 1, 2, settable(ASKED, Knobs())),)


def test_what_is_left_out_is_said_once_a_knob_and_only_if_it_was_asked_for() -> None:
    said = left_out([ASKED, ASKED], Knobs(threads=False, chunk=False))
    assert [sentence.split("=")[0] for sentence in said] == ["nt", "chunk"]
    assert "LAGOM_NT=1" in said[0]
    assert left_out([CommConfig(channels=2)], Knobs(threads=False, chunk=False)) == []
