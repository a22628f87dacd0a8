"""Whatever lies in a file: it is taken, refused by name, or one sentence says that it is no such file."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lagom.errors import LagomError
from lagom.exchange import FORMATS, Topology, detect, import_rules
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
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), NEAR, st.lists(st.integers(), max_size=2))
PARTS = st.dictionaries(
    st.sampled_from(
        ["collective", "bytesPerRank", "nNodes", "algorithm", "protocol", "channels", "chunkSize", "other"]
    ),
    VALUES,
)
RULES = st.lists(st.one_of(VALUES, st.fixed_dictionaries({"filter": PARTS, "config": PARTS})), max_size=4)


def take(text: str, form: str, topology: Topology | None) -> None:
    with contextlib.suppress(LagomError):
        detect(text)
        taken = import_rules(text, FORMATS[form], topology)
        assert all(parse_rule(format_rule(rule)) == rule for rule in taken.rules)
        assert all(entry.why and entry.where for entry in taken.refused)


@settings(max_examples=150)
@given(TEXTS, st.sampled_from(list(FORMATS)), st.sampled_from([None, Topology(8, 1)]))
@example("[" * 100_000, "ncclx-json", None)
@example('{"rules": ' + "9" * 5000 + "}", "ncclx-json", None)
@example(f"allgather,0,{'9' * 5000},ring,ll,1,-1,-1", "nccl", None)
def test_any_text(text: str, form: str, topology: Topology | None) -> None:
    take(text, form, topology)


@settings(max_examples=100)
@given(RULES)
def test_any_json_of_the_right_shape(rules: object) -> None:
    take(json.dumps({"rules": rules}), "ncclx-json", Topology(8, 1))


@pytest.mark.parametrize("form", FORMATS)
def test_an_empty_file_is_no_rule(form: str) -> None:
    if form == "ncclx-json":
        with pytest.raises(LagomError, match="no rule file"):
            import_rules("", FORMATS[form])
    else:
        assert import_rules("# nothing\n\n", FORMATS[form]).rules == ()
