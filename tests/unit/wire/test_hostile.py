# SPDX-License-Identifier: Apache-2.0
"""Any bytes where the Python side reads what others wrote: rules, saved configs, regions, rings. What comes out is
right or refused with one sentence; nothing else ever leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lagom.config_file import (
    EVIDENCE,
    BadConfig,
    Fingerprint,
    SavedConfig,
    Section,
    check_config,
    load_config,
    read_evidence,
    save_config,
)
from lagom.records import CommConfig, Function
from lagom.settings import split_rules
from lagom.wire.layout import CALL_RING_CAPACITY, KERNEL_RING_CAPACITY, MAX_COMMUNICATORS, MAX_PROCESSES, MAX_SLOTS, ffi
from lagom.wire.library import library
from lagom.wire.peek import peek_region
from lagom.wire.plan import BadRule, Plan, Rule, format_rule, parse_rule
from lagom.wire.region import Publication, Region, Verdict
from lagom.wire.views import communicators_in, processes_in, slots_in

quick = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

# ---- Rules -----------------------------------------------------------------------------------------------------------

WORDS = ["allgather", "any", ":", ">=", "<=", "=", "-", "1M", "64K", "nc=4", "nt=256", "chunk=512K", "algo=ring", ","]
rule_texts = st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=3))).map("".join))


@quick
@given(rule_texts)
@example("allgather:any:nc=1\0and more")
@example("ä" * 200)
@example("\ud800")
def test_a_rule_is_read_whole_or_refused(text: str) -> None:
    read = rule_or_reason(text)
    if isinstance(read, str):
        assert read.endswith(".")
    else:
        assert parse_rule(format_rule(read)) == read


def rule_or_reason(text: str) -> Rule | str:
    """What came of it; any other exception than the one that is promised fails the test."""
    try:
        return parse_rule(text)
    except BadRule as error:
        return str(error)


@quick
@given(st.text())
def test_rules_are_told_apart_whatever_is_between_them(text: str) -> None:
    assert all(rule and rule == rule.strip() and ";" not in rule and "#" not in rule for rule in split_rules(text))


# ---- Saved configs ---------------------------------------------------------------------------------------------------

WHOLE = b"""lagom-config 1
fingerprint nccl 23007
fingerprint gpu "NVIDIA H200"
environment NCCL_MAX_CTAS "16"
communicator ranks=8 nodes=1 ordinal=0 name="default_pg"
site 0 allgather 416M algo=ring proto=simple nc=3 chunk=256K nt=0
site 1 reducescatter 1G nc=4
program 0 2x1
rule any 1M - nc=4
end
#: {"step": 1}
"""


@st.composite
def damaged_configs(draw: st.DrawFn) -> bytes:
    """A sound saved config with some pieces replaced."""
    text = bytearray(WHOLE)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 6))] = draw(
            st.one_of(st.binary(max_size=6), st.sampled_from([b"4096x0", b'"', b"\n"]))
        )
    return bytes(text)


@quick
@given(st.one_of(st.binary(), damaged_configs()))
@example(WHOLE)
@example(b"lagom-config 1\n" + "ä".encode() * 300)
def test_a_saved_config_is_read_whole_or_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "config"
    path.write_bytes(text)
    assert all(isinstance(proof, dict) for proof in read_evidence(path))
    read = config_or_reason(path)
    if isinstance(read, str):
        assert "cannot be used" in read
        with pytest.raises(BadConfig):
            check_config(path)
        return
    if text.isascii():
        again = tmp_path / "again"
        save_config(read, again)
        assert load_config(again) == read


def config_or_reason(path: Path) -> SavedConfig | str:
    """As above."""
    try:
        return load_config(path)
    except BadConfig as error:
        return str(error)


@quick
@given(st.text(max_size=80), st.text(max_size=80))
@example('tp "inner"', "NVIDIA H200")
@example("x\nrule any - - nc=1", 'H200"\nfingerprint ranks 1')
def test_a_name_from_elsewhere_never_spoils_a_saved_config(tmp_path: Path, name: str, gpu: str) -> None:
    """Process groups are named by the job, GPUs by the driver, and both reach us through shared memory."""
    path = tmp_path / "config"
    rule = Rule(Function.ALL_GATHER, 0, 1 << 20, CommConfig(channels=4))
    section = Section(ranks=8, nodes=1, ordinal=0, name=name, rules=(rule,))
    save_config(SavedConfig(Fingerprint(ranks=8, gpu=gpu), (section,)), path, remark=name)
    found = load_config(path)
    fingerprint, (read,) = found.fingerprint, found.sections
    assert (fingerprint.ranks, read.rules, read.ranks) == (8, (rule,), 8)
    assert fingerprint.gpu in (gpu, "")
    assert read.name in (name, "")


@quick
@given(st.one_of(st.text(), st.just("[" * 100_000), st.just("9" * 5000)))
def test_evidence_is_an_object_or_left_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(WHOLE + (EVIDENCE + text + "\n").encode(errors="replace"))
    assert {"step": 1} in read_evidence(path)


# ---- Regions ---------------------------------------------------------------------------------------------------------

REGION_BYTES = ffi.sizeof("struct lagom_region")
METADATA = ffi.offsetof("struct lagom_region", "calls")
places = st.one_of(st.integers(0, 1024), st.integers(0, METADATA - 64), st.integers(0, REGION_BYTES - 64))
damage = st.lists(st.tuples(places, st.binary(min_size=1, max_size=48)), max_size=30)
small = st.sampled_from([b"\1\0\0\0", b"\2\0\0\0", b"\3\0\0\0", b"\xff\xff\xff\xff", b"\xff" * 8])


@contextmanager
def region_in(folder: Path) -> Iterator[Region]:
    """A region of our own, gone afterwards."""
    before = os.environ.get("LAGOM_SHM_DIR")
    os.environ["LAGOM_SHM_DIR"] = str(folder)
    try:
        with Region.create("hostile") as region:
            yield region
            region.close(unlink=True)
    finally:
        if before is None:
            del os.environ["LAGOM_SHM_DIR"]
        else:
            os.environ["LAGOM_SHM_DIR"] = before


def write_into(region: Region, patches: list[tuple[int, bytes]]) -> None:
    """Damage through the mapping itself: another descriptor, closed, would drop the controller's lock."""
    memory = ffi.buffer(region._region, REGION_BYTES)
    for at, data in patches:
        memory[at : at + len(data)] = data


def field(struct: str, index: int, name: str) -> int:
    """Offset of a field of an entry of a table."""
    table = {"process": "processes", "communicator": "communicators", "slot": "slots"}[struct]
    size = ffi.sizeof(f"struct lagom_{struct}")
    return ffi.offsetof("struct lagom_region", table) + index * size + ffi.offsetof(f"struct lagom_{struct}", name)


def states() -> st.SearchStrategy[list[tuple[int, bytes]]]:
    """Entries that look alive, so that what is in them is read."""
    entry = st.sampled_from(["process", "communicator", "slot"])
    state = st.tuples(entry, st.integers(0, 3), small).map(lambda e: (field(e[0], e[1], "state"), e[2][:4]))
    names = st.sampled_from([("communicator", "rank_count"), ("slot", "communicator"), ("slot", "process")])
    value = st.tuples(names, st.integers(0, 3), small).map(lambda e: (field(e[0][0], e[1], e[0][1]), e[2][:4]))
    return st.lists(st.one_of(state, value), max_size=12)


@quick
@given(damage, states())
def test_the_views_of_a_damaged_region_name_only_what_exists(
    patches: list[tuple[int, bytes]], alive: list[tuple[int, bytes]]
) -> None:
    memory = bytearray(REGION_BYTES)
    for at, data in [*patches, *alive]:
        memory[at : at + len(data)] = data
    region = ffi.from_buffer("struct lagom_region *", memory)
    assert all(view.index < MAX_PROCESSES for view in processes_in(region))
    assert all(view.index < MAX_COMMUNICATORS for view in communicators_in(region))
    views = slots_in(region, also_gone=True)
    assert all(v.index < MAX_SLOTS and v.process < MAX_PROCESSES and v.communicator < MAX_COMMUNICATORS for v in views)


@quick
@given(damage, states(), st.integers(0, 31))
def test_a_controller_in_a_damaged_region_goes_on(
    tmp_path: Path, patches: list[tuple[int, bytes]], alive: list[tuple[int, bytes]], communicator: int
) -> None:
    with region_in(tmp_path) as region:
        write_into(region, [*patches, *alive])
        region.sweep()
        for slot in region.slots(also_gone=True):
            records = region.drain_calls(slot.index)
            assert len(records) <= CALL_RING_CAPACITY
            assert (records["function"] < len(Function)).all()
        assert len(region.drain_kernels(communicator % MAX_PROCESSES)) <= KERNEL_RING_CAPACITY
        assert len(region.kernel_names()) <= 1024
        assert region.counters(communicator)[0] <= MAX_SLOTS
        assert region.timeline_state(communicator % MAX_PROCESSES).name
        published, epoch = region.publish(communicator, Plan(start_call=1 << 40))
        assert (published is Publication.OK) == (epoch != 0)
        assert isinstance(region.poll(communicator), Verdict)
        assert isinstance(region.withdraw(communicator), Verdict)
        refusal = region.refusal(communicator, epoch)
        assert refusal is None or refusal.text.endswith(".")
        region.histories_differed(communicator, epoch)
        assert region.processes_alive() <= MAX_PROCESSES
        assert isinstance(region.job_key, str)


@pytest.mark.parametrize("fault", [8, 200, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1])
def test_a_refusal_for_any_reason_is_a_sentence(tmp_path: Path, fault: int) -> None:
    ready = library().LAGOM_READY
    with region_in(tmp_path) as region:
        values = {"state": (ready, 4), "refused_epoch": (7, 8), "refused_fault": (fault, 8)}
        patches = [(field("slot", 0, name), value.to_bytes(size, "little")) for name, (value, size) in values.items()]
        write_into(region, patches)
        refusal = region.refusal(0, 7)
    assert refusal is not None
    assert refusal.text.endswith(".")


@quick
@given(st.one_of(st.binary(max_size=2048), st.integers(0, 2 * REGION_BYTES)), st.sampled_from([0o600, 0o644, 0o6600]))
def test_any_file_is_looked_at_without_harm(tmp_path: Path, content: bytes | int, mode: int) -> None:
    path = tmp_path / "lagom-0-0123456789abcdef"
    path.unlink(missing_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else b"")
    if isinstance(content, int):
        os.truncate(path, content)
    path.chmod(mode)
    assert peek_region(path).fault
