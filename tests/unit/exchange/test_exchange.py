"""Every format both ways, held against what the other side does with the same call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagom.exchange import FORMATS, Entry, Topology, detect, export_rules, import_rules
from lagom.exchange.source import of_rules
from lagom.records import Algorithm, CommConfig, Function, Protocol
from lagom.wire.plan import NO_LIMIT, Rule
from tests.unit.exchange import readers
from tests.unit.exchange.readers import Call, Decision

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
    """What Lagom does: the first rule that matches."""
    function = next(f for f in Function if f.word == call.function)
    rule = next((rule for rule in rules if rule.matches(function, call.bytes)), None)
    if rule is None:
        return None
    config = rule.config
    assert config.algorithm is not None
    assert config.protocol is not None
    names = config.algorithm.name.lower(), config.protocol.name.lower()
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


def read_by(form: str) -> Callable[[str, Call], Decision | None]:
    """The other side's reader of a format."""
    if form == "nccl":
        return readers.nccl_example
    parse = readers.ncclx_json if form == "ncclx-json" else readers.ncclx_csv
    return lambda text, call: readers.ncclx(parse(text), call)


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
    taken = import_rules(text, FORMATS["nccl"], EIGHT)
    assert not taken.refused
    for call in calls(EIGHT, possible=False):
        assert ours(taken.rules, call) == readers.nccl_example(text, call)


@settings(max_examples=60)
@given(st.lists(st.tuples(NCCL_LINES, st.sampled_from(["", "", ",-1,-1", ",-1,1", ",-1,0"])), min_size=1, max_size=8))
def test_taking_a_part_never_gives_a_call_what_the_file_would_not(lines: list[tuple[str, str]]) -> None:
    text = "\n".join(line + filters for line, filters in lines)
    taken = import_rules(text, FORMATS["nccl"], EIGHT)
    for call in calls(EIGHT, possible=False):
        mine = ours(taken.rules, call)
        theirs = {
            readers.nccl_example(text, Call(call.function, call.bytes, 1, 8, registered)) for registered in (0, 1)
        }
        assert mine is None or theirs == {mine}


RANGES = st.one_of(
    st.just("*"),
    st.sampled_from(SIZES).map(str),
    st.builds(
        lambda a, b, opening, closing: f"{opening}{min(a, b)},{max(a, b)}{closing}",
        st.sampled_from(SIZES),
        st.sampled_from(SIZES),
        st.sampled_from("[("),
        st.sampled_from("])"),
    ),
    st.sampled_from(["[4096,)", "(,8192]", "(8,)", "(,65536)"]),
)
COUNTS = st.sampled_from(["*", "1", "2", "[1,2)", "(1,)", "8", "[4,8]"])
NCCLX_LINES = st.builds(
    lambda f, s, a, p, c, n, r: f"{f},{s},{a},{p},{c},{n},{r}",
    st.sampled_from(readers.FUNCTIONS),
    RANGES,
    st.sampled_from(["ring", "tree"]),
    st.sampled_from(["ll128", "simple"]),
    st.sampled_from([-1, 2, 32]),
    COUNTS,
    COUNTS,
)


@settings(max_examples=60)
@given(st.lists(NCCLX_LINES, min_size=1, max_size=8), st.sampled_from([EIGHT, Topology(16, 2), Topology(9, 2)]))
def test_rules_of_ncclx_mean_the_same_here_in_both_spellings(lines: list[str], topology: Topology) -> None:
    text = "\n".join(lines)
    rules = readers.ncclx_csv(text)
    as_json = import_rules(readers.json.dumps({"rules": rules}), FORMATS["ncclx-json"], topology)
    taken = import_rules(text, FORMATS["ncclx-csv"], topology)
    assert (taken.rules, taken.refused) == (as_json.rules, ())
    for call in calls(topology, possible=False):
        assert ours(taken.rules, call) == readers.ncclx(rules, call)


# -- out, and back


BOUNDS = st.one_of(
    st.just((0, NO_LIMIT)),
    st.tuples(st.sampled_from(SIZES), st.sampled_from([*SIZES, NO_LIMIT])).filter(lambda b: b[0] <= b[1]),
)
RULES = st.lists(
    st.builds(lambda f, b, c: Rule(f, *b, c), st.one_of(st.none(), FUNCTIONS), BOUNDS, CONFIGS), min_size=1, max_size=5
)


@settings(max_examples=120)
@given(RULES, st.sampled_from(list(FORMATS)), st.sampled_from([EIGHT, Topology(16, 2)]))
def test_what_is_written_is_done_there_and_comes_back(rules: list[Rule], form: str, only: Topology) -> None:
    written = export_rules(of_rules(rules, only), FORMATS[form])
    back = import_rules(written.text, FORMATS[form], only)
    assert not back.refused
    theirs = read_by(form)
    for call in calls(only, possible=True):
        there = theirs(written.text, call)
        assert ours(back.rules, call) == there
        if written.refused:
            assert there in (None, ours(rules, call))
        else:
            assert there == ours(rules, call)


@settings(max_examples=40)
@given(RULES, st.integers(16384, 1 << 20), st.integers(0, 4))
def test_chunks_go_to_ncclx_only_where_they_stay_with_their_calls(rules: list[Rule], chunk: int, place: int) -> None:
    chunky = Rule(None, 0, NO_LIMIT, CommConfig(Algorithm.RING, Protocol.SIMPLE, None, None, chunk))
    rules.insert(place, chunky)
    written = export_rules(of_rules(rules, EIGHT), FORMATS["ncclx-csv"])
    for call in calls(EIGHT, possible=True):
        there = readers.ncclx(readers.ncclx_csv(written.text), call)
        assert there == ours(rules, call) or (written.refused and there is None)
    assert export_rules(of_rules([chunky], EIGHT), FORMATS["nccl"]).lines == 0


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
        ("allgather,0,1,ring,simple,1,-1,-1" + " " * 250, "longer than the 255"),
    ],
)
def test_a_line_of_nvidias_that_cannot_be_taken_is_named(line: str, why: str) -> None:
    taken = import_rules(f"# one\nallreduce,0,9,ring,ll,1,-1,-1\n\n{line}\n", FORMATS["nccl"])
    assert [entry.where for entry in taken.refused] == ["line 4"]
    assert why in str(taken.refused[0])
    assert taken.rules == (Rule(Function.ALL_REDUCE, 0, 9, CommConfig(Algorithm.RING, Protocol.LL, 1)),)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("allgather,[0,1048576],ring,simple,-1,*,*", "bytes are those of one rank"),
        ("allgather,*,ring,simple,-1,2,*", "only for nNodes 2"),
        ("allgather,(2,1],ring,simple,-1,*,*", "begins above its end"),
        ("allgather,*,ring,simple,-1,*,*,4", "eighth column is 4"),
        ("allgather,*,ring,simple,-1,*,*,3,-1", "numPipeOps 3"),
        ("allgather,*,ring,simple,-1,*,*,-1,1,65536", "regBuff 1"),
        ("allgather,*,ring,simple,-1,*,*,8000000000", "chunk"),
        ("allgather,*,ring,simple,-1,*", "columns"),
        ("allgather,*,,simple,-1,*,*", "no algorithm ''"),
    ],
)
def test_a_line_of_ncclx_that_cannot_be_taken_is_named(line: str, why: str) -> None:
    taken = import_rules(f"allreduce,*,tree,ll,2,*,*\n{line}\n", FORMATS["ncclx-csv"])
    assert [entry.where for entry in taken.refused] == ["line 2"]
    assert why in str(taken.refused[0])
    assert len(taken.rules) == 1


@pytest.mark.parametrize("columns", ["-1,-1,65536", "65536"])
def test_both_layouts_of_ncclx_give_the_chunk(columns: str) -> None:
    taken = import_rules(f"allgather,*,ring,simple,-1,*,*,{columns}", FORMATS["ncclx-csv"])
    assert taken.rules[0].config.chunk_bytes == 65536


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"filter": {"collective": "allgather", "bytes": "[0,9]"}, "config": {}}, 'filter "bytes"'),
        (
            {"filter": {"collective": "allgather"}, "config": {"algorithm": "ring", "protocol": "ll", "channels": [4]}},
            "channels",
        ),
        ({"collective": "allgather"}, 'no object "filter"'),
        (7, 'no object "filter"'),
    ],
)
def test_a_json_rule_that_cannot_be_taken_is_named(rule: object, why: str) -> None:
    taken = import_rules(readers.json.dumps({"rules": [rule]}), FORMATS["ncclx-json"])
    assert [entry.where for entry in taken.refused] == ["rule 1"]
    assert why in str(taken.refused[0])


@pytest.mark.parametrize(
    ("config", "form", "why"),
    [
        (CommConfig(channels=3), "nccl", "leaves algorithm or protocol to NCCL"),
        (CommConfig(), "nccl", "leaves everything to NCCL"),
        (CommConfig(Algorithm.RING, Protocol.LL, threads=128), "ncclx-csv", "threads"),
        (CommConfig(Algorithm.RING, Protocol.LL, chunk_bytes=65536), "nccl", "no chunk size"),
        (CommConfig(Algorithm.RING, Protocol.LL, chunk_bytes=65536), "ncclx-csv", "bytes of one channel"),
        (CommConfig(Algorithm.RING, Protocol.LL), "ncclx-json", "nearest that does is 0-103"),
    ],
)
def test_a_rule_that_cannot_be_written_is_named(config: CommConfig, form: str, why: str) -> None:
    rule = Rule(Function.ALL_REDUCE, 3, 100, config)
    written = export_rules(of_rules([rule], EIGHT), FORMATS[form])
    assert written.lines == 0
    assert why in str(written.refused[0])


def test_no_more_rules_are_taken_than_a_plan_holds() -> None:
    lines = "\n".join(f"allgather,{i},{i},ring,ll,1,-1,-1" for i in range(40))
    taken = import_rules(lines, FORMATS["nccl"])
    assert len(taken.rules) == 32
    assert [entry.where for entry in taken.refused][:1] == ["line 33"]


def test_five_lines_that_say_the_same_are_one_rule() -> None:
    text = "\n".join(f"{function},0,9,ring,ll,1,-1,-1" for function in readers.FUNCTIONS)
    assert import_rules(text, FORMATS["nccl"]).rules == (Rule(None, 0, 9, CommConfig(Algorithm.RING, Protocol.LL, 1)),)


def test_second_choices_are_remarked() -> None:
    text = "allgather,0,9,nvls,simple,1,-1,-1\nallgather,5,20,ring,simple,1,-1,-1"
    assert any("line 2 begins where line 1" in remark for remark in import_rules(text, FORMATS["nccl"]).remarks)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("# x\nallgather,0,9,ring,ll,1,-1,-1", "nccl"),
        ("collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks", "nccl"),
        ("allgather,[0,9],ring,ll,1,*,*", "ncclx-csv"),
        ("collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks,chunkSize", "ncclx-csv"),
        (' {"rules": []}', "ncclx-json"),
    ],
)
def test_a_format_is_known_by_its_looks(text: str, name: str) -> None:
    assert detect(text).name == name


def test_entries_that_were_refused_before_stay_refused() -> None:
    rule = Rule(Function.ALL_GATHER, 0, 9, CommConfig(Algorithm.RING, Protocol.LL))
    written = export_rules([Entry("site 0", rule, "of its place")], FORMATS["nccl"])
    assert [str(entry) for entry in written.refused] == ["site 0: of its place"]


def test_a_chunk_that_ncclx_would_lend_to_another_rule_is_refused() -> None:
    plain = Rule(Function.ALL_GATHER, 8192, NO_LIMIT, CommConfig(Algorithm.RING, Protocol.SIMPLE, 4))
    chunky = Rule(Function.ALL_GATHER, 0, NO_LIMIT, CommConfig(Algorithm.RING, Protocol.SIMPLE, None, None, 65536))
    written = export_rules(of_rules([plain, chunky], EIGHT), FORMATS["ncclx-csv"])
    assert [entry.rule for entry in written.refused] == [chunky]
    assert "for the calls of rule allgather" in str(written.refused[0])
    taken = import_rules(
        "allgather,[1024,),ring,simple,4,*,*\nallgather,*,ring,simple,-1,*,*,65536", FORMATS["ncclx-csv"], EIGHT
    )
    assert any("chunkSize of line 2 is also used for the calls that line 1 decides" in r for r in taken.remarks)
