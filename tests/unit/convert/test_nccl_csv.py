# SPDX-License-Identifier: Apache-2.0
"""Every format both ways, held against what the other side does with the same call."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagom.convert import RuleEntry, Topology, convert_csv, convert_rules
from lagom.convert.source import of_rules
from lagom.records import Algorithm, CommConfig, Function, Protocol
from lagom.wire.plan import NO_LIMIT, Rule, format_rule
from tests.unit.convert import readers
from tests.unit.convert.readers import Call, Decision

EIGHT = Topology(8, 1)
#: Bounds that meet, touch and miss each other, and calls beside each of them.
EDGES = (0, 8, 4096, 8192, 65536, 1 << 20)
SIZES = sorted({max(0, edge + step) for edge in EDGES for step in (-8, -1, 0, 1, 8)})
FUNCTIONS = st.sampled_from(list(Function))
CONFIGS = st.builds(
    CommConfig,
    st.sampled_from([Algorithm.RING, Algorithm.TREE, Algorithm.NVLS_TREE]),
    st.sampled_from(list(Protocol)),
    st.one_of(st.none(), st.integers(1, 64)),
)


def ours(rules: tuple[Rule, ...] | list[Rule], call: Call) -> Decision | None:
    """What Lagom does: the first rule that matches, or NCCL's choice where that names a pair without a kernel."""
    function = next(f for f in Function if f.word == call.function)
    rule = next((rule for rule in rules if rule.matches(function, call.bytes)), None)
    if rule is None:
        return None
    config = rule.config
    assert config.algorithm is not None
    assert config.protocol is not None
    names = config.algorithm.name.lower(), config.protocol.name.lower()
    if not readers.has_kernel(call.function, *names):
        return None
    return Decision(*names, config.channels, config.chunk_bytes)


def calls(topology: Topology, *, possible: bool) -> list[Call]:
    """Calls of every function at every edge; ``possible``: only byte counts that the function can have."""
    scaled = ("allgather", "reducescatter")
    return [
        Call(function, size, topology.nodes, topology.ranks)
        for function in readers.FUNCTIONS
        for size in SIZES
        if not possible or function not in scaled or size % topology.ranks == 0
    ]


# -- in


NCCL_LINES = st.builds(
    lambda f, low, high, a, p, c, n, r: f"{f},{low},{high},{a},{p},{c},{n},{r}",
    st.sampled_from(readers.FUNCTIONS),
    st.sampled_from(SIZES),
    st.sampled_from([*SIZES, 4294967295, NO_LIMIT]),
    st.sampled_from(["ring", "tree", "pat"]),
    st.sampled_from(["ll", "ll128", "simple"]),
    st.sampled_from([-1, 0, 1, 64]),
    st.sampled_from([-1, 1, 2]),
    st.sampled_from([-1, 8, 16]),
)


@settings(max_examples=60)
@given(st.lists(NCCL_LINES, min_size=1, max_size=8))
def test_lines_of_nvidias_example_mean_the_same_here(lines: list[str]) -> None:
    text = "\n".join(["# a comment", *lines, ""])
    taken = convert_csv(text, EIGHT)
    assert not taken.refused
    for call in calls(EIGHT, possible=False):
        assert ours(taken.rules, call) == readers.nccl_example(text, call)


@settings(max_examples=60)
@given(st.lists(st.tuples(NCCL_LINES, st.sampled_from(["", "", ",-1,-1", ",-1,1", ",-1,0"])), min_size=1, max_size=8))
def test_taking_a_part_never_gives_a_call_what_the_file_would_not(lines: list[tuple[str, str]]) -> None:
    text = "\n".join(line + filters for line, filters in lines)
    taken = convert_csv(text, EIGHT)
    for call in calls(EIGHT, possible=False):
        mine = ours(taken.rules, call)
        theirs = {
            readers.nccl_example(text, Call(call.function, call.bytes, 1, 8, registered)) for registered in (0, 1)
        }
        assert mine is None or theirs == {mine}


# -- out, and back


BOUNDS = st.one_of(
    st.just((0, NO_LIMIT)),
    st.tuples(st.sampled_from(SIZES), st.sampled_from([*SIZES, NO_LIMIT])).filter(lambda b: b[0] <= b[1]),
)
RULES = st.lists(
    st.builds(lambda f, b, c: Rule(f, *b, c), st.one_of(st.none(), FUNCTIONS), BOUNDS, CONFIGS), min_size=1, max_size=5
)


@settings(max_examples=120)
@given(RULES, st.sampled_from([EIGHT, Topology(16, 2)]))
def test_what_is_written_is_done_there_and_comes_back(rules: list[Rule], only: Topology) -> None:
    written = convert_rules(of_rules(rules, only))
    back = convert_csv(written.text, only)
    assert not back.refused
    for call in calls(only, possible=True):
        there = readers.nccl_example(written.text, call)
        assert ours(back.rules, call) == there
        if written.refused:
            assert there in (None, ours(rules, call))
        else:
            assert there == ours(rules, call)


# -- refused by name


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("allgater,0,1,ring,simple,1,-1,-1", "no collective 'allgater'"),
        ("allgather,0,1,rings,simple,1,-1,-1", "no algorithm 'rings'"),
        ("allgather,0,1,ring,simpel,1,-1,-1", "no protocol 'simpel'"),
        ("allgather,1M,2M,ring,simple,1,-1,-1", "min_bytes '1M' is no whole number"),
        ("allgather,0,1,ring,simple,128,-1,-1", "128 channels"),
        ("allgather,0,1,ring,simple,1,1,8", "name yours with --ranks and --nodes"),
        ("allgather,0,1,ring,simple,1,-1,-1,2", "numPipeOps 2"),
        ("allgather,0,1,ring,simple,1,-1,-1,-1,1", "regBuff 1"),
        ("allgather,,1,ring,simple,1,-1,-1", "fields"),
        ("allgather,0,1,ring,simple", "fields"),
        ("allgather,0,1,ring,simple,1,-1,-1,-1,-1,7", "fields"),
        ("allgather,0,1,ring,simple,1,-1,-1" + " " * 250, "reads only 255 characters"),
    ],
)
def test_a_line_of_nvidias_that_cannot_be_taken_is_named(line: str, why: str) -> None:
    taken = convert_csv(f"# one\nallreduce,0,9,ring,ll,1,-1,-1\n\n{line}\n")
    assert [entry.where for entry in taken.refused] == ["line 4"]
    assert why in str(taken.refused[0])
    assert taken.rules == (Rule(Function.ALL_REDUCE, 0, 9, CommConfig(Algorithm.RING, Protocol.LL, 1)),)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (CommConfig(channels=3), "leaves algorithm or protocol to NCCL"),
        (CommConfig(), "leaves everything to NCCL"),
        (CommConfig(Algorithm.RING, Protocol.LL, threads=128), "threads"),
        (CommConfig(Algorithm.RING, Protocol.LL, chunk_bytes=65536), "no chunk size"),
    ],
)
def test_a_rule_that_cannot_be_written_is_named(config: CommConfig, why: str) -> None:
    rule = Rule(Function.ALL_REDUCE, 3, 100, config)
    written = convert_rules(of_rules([rule], EIGHT))
    assert written.lines == 0
    assert why in str(written.refused[0])


ORDER = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"
LINE = "allreduce,0,9,ring,ll,1,-1,-1,-1,-1"


@pytest.mark.parametrize("mark", ["", "# ", "# Format: "])
@pytest.mark.parametrize(
    ("places", "why"),
    [
        ((0, 1, 2, 3, 4, 5, 7, 6, 8, 9), "its column 7 is nRanks, where the example plugin reads nNodes"),
        ((0, 1, 2, 4, 3, 5, 6, 7), "its column 4 is protocol, where the example plugin reads algorithm"),
        ((1, 2, 0, 3, 4, 5, 6, 7), "its column 1 is min_bytes, where the example plugin reads collective_type"),
        ((0, 1, 2, 3, 4, 5, 6, 7, 9, 8), "its column 9 is regBuff, where the example plugin reads numPipeOps"),
    ],
)
def test_nothing_is_read_behind_a_header_with_columns_in_another_order(
    mark: str, places: tuple[int, ...], why: str
) -> None:
    header = ",".join(ORDER.split(",")[place] for place in places)
    taken = convert_csv(f"{LINE}\n{mark}{header}\n{LINE.replace('0,9', '10,20')}\n")
    assert [entry.where for entry in taken.refused] == ["line 2"]
    assert why in str(taken.refused[0])
    assert len(taken.rules) == 1
    assert not any("could not be read" in remark for remark in taken.remarks), "no rule stands behind it"


@pytest.mark.parametrize("mark", ["", "# ", "#Format: "])
@pytest.mark.parametrize(
    "header",
    [
        ORDER,
        ORDER.removesuffix(",numPipeOps,regBuff"),
        "colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps][,regBuff]",
        "collective, minBytes, maxBytes, algo, proto, nChannels, nodes, ranks",
    ],
)
def test_a_header_with_the_columns_of_the_format_is_passed_over(mark: str, header: str) -> None:
    taken = convert_csv(f"{mark}{header}\n{LINE}\n{mark}{header}\n")
    assert not taken.refused
    assert len(taken.rules) == 1


def test_a_column_that_the_format_does_not_have_is_named() -> None:
    for header, why in (
        ("collective,size_bytes,algorithm,protocol,channels,nodes,ranks,latency_us", "its column 2 is size_bytes"),
        (f"{ORDER},partitionMode", "its column 11 is partitionMode, where the example plugin reads nothing"),
    ):
        assert why in str(convert_csv(f"{header}\n{LINE}").refused[0])


def test_a_comment_that_names_some_columns_is_a_comment() -> None:
    text = f"# by nRanks, nNodes\n# ranks: channels,protocol,algorithm\n# collective,minBytes,algorithm\n{LINE}"
    assert not convert_csv(text).refused


@pytest.mark.parametrize("function", list(Function))
@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_pair_that_nccl_has_no_kernel_for_is_left_out_with_a_note(
    function: Function, algorithm: Algorithm, protocol: Protocol
) -> None:
    words = function.word, algorithm.name.lower(), protocol.name.lower()
    taken = convert_csv(f"{words[0]},0,99,{words[1]},{words[2]},4,-1,-1\n{words[0]},0,99,ring,simple,8,-1,-1")
    note = f"line 1 is left out: NCCL has {'' if words[1] in readers.KERNELS[words[0]].split() else 'no '}{words[1]} "
    assert not taken.refused
    assert any(remark.startswith(note) for remark in taken.remarks) != readers.has_kernel(*words)
    assert (taken.rules[0].config.channels == 4) == readers.has_kernel(*words), "the next line has these calls"
    written = convert_rules(of_rules([Rule(function, 0, 99, CommConfig(algorithm, protocol, 4))], EIGHT))
    assert written.lines == readers.has_kernel(*words)
    assert any("so that these calls are left to NCCL" in one for one in written.remarks) != readers.has_kernel(*words)


def test_algorithm_and_protocol_left_to_the_library_are_expressed_with_a_note() -> None:
    text = "allreduce,0,9,-1,-1,32,1,8,-1,-1\nallreduce,10,20,-1,-1,-1,-1,-1\nallreduce,0,30,ring,ll,2,-1,-1"
    taken = convert_csv(text, EIGHT)
    assert [format_rule(rule) for rule in taken.rules] == [
        "allreduce:<=9:nc=32", "allreduce:10-20:nc=0", "allreduce:<=30:algo=ring,proto=ll,nc=2",
    ]  # fmt: skip
    assert sum("-1 are taken as tuners for RCCL take them" in remark for remark in taken.remarks) == 1
    assert not any("begins where" in remark for remark in taken.remarks), "NCCL always offers its own choice"


@pytest.mark.parametrize("pair", ["-1,simple", "ring,-1"])
def test_half_a_pair_that_is_left_to_the_library_is_refused_by_name(pair: str) -> None:
    taken = convert_csv(f"allreduce,0,9,{pair},32,-1,-1")
    assert "only one of algorithm and protocol is -1" in str(taken.refused[0])


def test_no_more_rules_are_taken_than_a_plan_holds() -> None:
    lines = "\n".join(f"allgather,{i},{i},ring,ll,1,-1,-1" for i in range(40))
    taken = convert_csv(lines)
    assert len(taken.rules) == 32
    assert [entry.where for entry in taken.refused][:1] == ["line 33"]


def test_five_lines_that_say_the_same_are_one_rule() -> None:
    text = "\n".join(f"{function},0,9,ring,ll,1,-1,-1" for function in readers.FUNCTIONS)
    assert convert_csv(text).rules == (Rule(None, 0, 9, CommConfig(Algorithm.RING, Protocol.LL, 1)),)


def test_second_choices_are_remarked() -> None:
    text = "allgather,0,9,nvls,simple,1,-1,-1\nallgather,5,20,ring,simple,1,-1,-1"
    assert any("line 2 begins where line 1" in remark for remark in convert_csv(text).remarks)


def test_entries_that_were_refused_before_stay_refused() -> None:
    rule = Rule(Function.ALL_GATHER, 0, 9, CommConfig(Algorithm.RING, Protocol.LL))
    written = convert_rules([RuleEntry("site 0", rule, "of its place")])
    assert [str(entry) for entry in written.refused] == ["site 0: of its place"]
