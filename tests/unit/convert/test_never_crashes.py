# SPDX-License-Identifier: Apache-2.0
"""Whatever lies in a file: it is taken, refused by name, or one sentence says that it is no such file."""

from __future__ import annotations

import contextlib

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lagom.convert import Topology, convert_csv
from lagom.errors import LagomError
from lagom.wire.plan import format_rule, parse_rule

#: Words that come near to what is meant.
NEAR = st.sampled_from(
    [
        *("allgather", "reducescatter", "ring", "tree", "simple", "ll128", "-1", "0", "8", "65536", "*"),
        *("[0,9]", "(,4]", "(1,", "]", "", " ", "1" * 25, "-0", "+7", "1e3", "#", "\ufeffallgather", "\x00", "\u2028"),
    ]
)
LINES = st.lists(NEAR, max_size=12).map(",".join)
TEXTS = st.one_of(st.text(max_size=60), st.lists(LINES, max_size=5).map("\n".join))


def take(text: str, topology: Topology | None) -> None:
    with contextlib.suppress(LagomError):
        taken = convert_csv(text, topology)
        assert all(parse_rule(format_rule(rule)) == rule for rule in taken.rules)
        assert all(entry.why and entry.where for entry in taken.refused)


@settings(max_examples=150)
@given(TEXTS, st.sampled_from([None, Topology(8, 1)]))
@example("[" * 100_000, None)
@example(f"allgather,0,{'9' * 5000},ring,ll,1,-1,-1", None)
def test_any_text(text: str, topology: Topology | None) -> None:
    take(text, topology)


def test_an_empty_file_is_no_rule() -> None:
    assert convert_csv("# nothing\n\n").rules == ()
