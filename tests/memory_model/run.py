# SPDX-License-Identifier: Apache-2.0
"""Runs the scenarios under Relacy: the shipped sources must hold, and each planted fault must be found.

The sources are copied with smaller tables, a variant's text is replaced, and the copy is compiled by gcc with
``-fsanitize=thread`` and linked with ``relacy_runtime.cpp``. A text that is not in the source exactly once is an error,
so a variant cannot outlive the line it is about.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.building import build_lock, is_newer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "memory_model"
THIRD_PARTY = HERE / "third_party"  # Relacy's headers
MISSING = "g++ is not installed; on Debian and Ubuntu: apt install g++"
EXECUTIONS = 20_000
PREEMPTIONS = 1
ALL_WITHIN_BOUND = 50_000_000  # far more than there are: the search ends when all were visited
TIME_LIMIT_S = 3600

# Tables that are walked or cleared in every execution, as small as the scenarios allow.
SCALED = {
    "LAGOM_MAX_PROCESSES": 2,
    "LAGOM_MAX_COMMUNICATORS": 2,
    "LAGOM_MAX_SLOTS": 3,
    "LAGOM_MAX_PLANS": 8,  # so many fill whole cache lines
    "LAGOM_MAX_CALL_RINGS": 3,
    "LAGOM_ONE_NODE_COMMUNICATORS": 1,
    "LAGOM_ONE_NODE_SLOTS": 2,
    "LAGOM_CALL_RING_CAPACITY": 2,
    "LAGOM_KERNEL_RING_CAPACITY": 2,
    "LAGOM_MAX_KERNEL_NAMES": 2,
}
CC = [
    "gcc",
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O0",  # no slower under the model, and half the time to compile
    "-g",
    "-Wall",
    "-Wno-tsan",
    "-Wno-unused-function",
    "-fsanitize=thread",
]
CC += ["-Icsrc", "-I.", f"-I{ROOT}", "-D__builtin_memcpy=model_memcpy"]
CXX = ["g++", "-std=c++14", "-O2", "-w", f"-I{ROOT}", f"-I{THIRD_PARTY}"]


@dataclass(frozen=True)
class Edit:
    """One text of a source replaced by another; it must be there exactly once."""

    source: str  # below csrc or tuner_plugin
    text: str
    becomes: str


@dataclass(frozen=True)
class Variant:
    """A scenario with some orderings weakened. ``harmless`` says why nothing can be found; empty = must be found."""

    name: str
    scenario: str
    edits: list[Edit] = field(default_factory=list)
    harmless: str = ""


AGREEMENT, PUBLISHER, REPLAY = "csrc/agreement/agreement.c", "csrc/agreement/publisher.c", "csrc/agreement/replay.c"
ATOMIC, RING, REGISTRATION = "csrc/protocol/lagom_atomic.h", "csrc/shm/ring.c", "csrc/shm/registration.c"
TABLE = "csrc/shm/region_table.c"
CAPTURE_THREAD, SPANS = "csrc/timeline/capture_thread.c", "tuner_plugin/spans.c"

ACK_STORE = Edit(AGREEMENT, "lagom_store_release(&slot->ack_epoch,", "lagom_store_relaxed(&slot->ack_epoch,")
ACK_LOAD = Edit(PUBLISHER, "lagom_load_acquire(&slot->ack_epoch)", "lagom_load_relaxed(&slot->ack_epoch)")
FENCE = Edit(AGREEMENT, "lagom_publish_fence();", "")
FENCE_WEAK = Edit(ATOMIC, "__atomic_thread_fence(__ATOMIC_SEQ_CST)", "__atomic_thread_fence(__ATOMIC_ACQ_REL)")
REFUSED_STORE = Edit(
    AGREEMENT,
    "lagom_store_release(&agreement->slot->refused_epoch,",
    "lagom_store_relaxed(&agreement->slot->refused_epoch,",
)
REFUSED_TALLY = Edit(PUBLISHER, "lagom_load_acquire(&slot->refused_epoch)", "lagom_load_relaxed(&slot->refused_epoch)")
REFUSED_REPLAY = Edit(REPLAY, "lagom_load_acquire(&slot->refused_epoch)", "lagom_load_relaxed(&slot->refused_epoch)")
PREPARED = Edit(
    PUBLISHER,
    "lagom_compare_exchange(shared, word, LAGOM_WORD(LAGOM_PREPARED, plan->epoch));",
    "__atomic_compare_exchange_n(shared, &word, LAGOM_WORD(LAGOM_PREPARED, plan->epoch), false, __ATOMIC_RELAXED,"
    " __ATOMIC_RELAXED);",
)
WORD_LOAD = Edit(
    AGREEMENT,
    "uint64_t word = lagom_load_acquire(&agreement->shared->word); /* pairs with PREPARED",
    "uint64_t word = lagom_load_relaxed(&agreement->shared->word); /* pairs with PREPARED",
)
ABORT_STORE = Edit(
    AGREEMENT,
    "if (lagom_compare_exchange(&agreement->shared->word, word, aborted)) {",
    "lagom_store_release(&agreement->shared->word, aborted);\n    if (word != aborted) {",
)
COMMIT_STORE = Edit(
    PUBLISHER,
    "lagom_compare_exchange(&entry->word, word, LAGOM_WORD(state, LAGOM_WORD_EPOCH(word)));",
    "lagom_store_release(&entry->word, LAGOM_WORD(state, LAGOM_WORD_EPOCH(word)));",
)
NOT_PASSED = Edit(
    PUBLISHER,
    "if (!lagom_switch_passed(epoch, active, lagom_load_relaxed(&slot->active_start), calls)) {",
    "if (active > epoch + calls) {",
)
COUNTER_STORE = Edit(
    AGREEMENT, "lagom_store_release(&agreement->slot->calls,", "lagom_store_relaxed(&agreement->slot->calls,"
)
COUNTER_LOAD = Edit(
    PUBLISHER, "lagom_load_acquire(&region->slots[i].calls)", "lagom_load_relaxed(&region->slots[i].calls)"
)
ACTIVE_STORE = Edit(
    AGREEMENT,
    "lagom_store_release(&agreement->slot->active_epoch,",
    "lagom_store_relaxed(&agreement->slot->active_epoch,",
)
HEAD_STORE = Edit(RING, "lagom_store_release(ring.head, head + 1)", "lagom_store_relaxed(ring.head, head + 1)")
HEAD_LOAD = Edit(RING, "uint64_t head = lagom_load_acquire(ring.head)", "uint64_t head = lagom_load_relaxed(ring.head)")
TAIL_STORE = Edit(RING, "lagom_store_release(ring.tail, tail + taken)", "lagom_store_relaxed(ring.tail, tail + taken)")
TAIL_LOAD = Edit(RING, "uint64_t tail = lagom_load_acquire(ring.tail)", "uint64_t tail = lagom_load_relaxed(ring.tail)")
HEAD_EARLY = Edit(
    RING,
    "    __builtin_memcpy(ring.records + (head",
    "    lagom_store_release(ring.head, head + 1);\n    __builtin_memcpy(ring.records + (head",
)
SLOT_STORE = Edit(
    REGISTRATION,
    "LAGOM_HISTORY_SEED);\n    lagom_store_release(&slot->state,",
    "LAGOM_HISTORY_SEED);\n    lagom_store_relaxed(&slot->state,",
)
SLOT_LOAD = Edit(PUBLISHER, "lagom_load_acquire(&slot->state)", "lagom_load_relaxed(&slot->state)")
ENTRY_STORE = Edit(
    REGISTRATION,
    "lagom_store_release(&entry->state, (uint32_t)LAGOM_READY)",
    "lagom_store_relaxed(&entry->state, (uint32_t)LAGOM_READY)",
)
ENTRY_LOAD = Edit(PUBLISHER, "lagom_load_acquire(&entry->state)", "lagom_load_relaxed(&entry->state)")
ENDING_STORE = Edit(
    CAPTURE_THREAD, "lagom_store_release(&timeline.ending, 1u)", "lagom_store_relaxed(&timeline.ending, 1u)"
)
ENDING_LOAD = Edit(CAPTURE_THREAD, "lagom_load_acquire(&timeline.ending)", "lagom_load_relaxed(&timeline.ending)")
TURN_STORE = Edit(SPANS, "lagom_store_release(&turn, 0u);", "lagom_store_relaxed(&turn, 0u);")
OWNER_LOAD = Edit(
    TABLE,
    "if (lagom_load_acquire(&slot->state) == LAGOM_READY &&",
    "if (lagom_load_relaxed(&slot->state) == LAGOM_READY &&",
)
OWNER_OF_ANY = Edit(
    TABLE,
    "if (lagom_load_acquire(&slot->state) == LAGOM_READY &&",
    "if (lagom_load_acquire(&slot->state) != LAGOM_FREE &&",
)

IMPLIED_BY_SLOT = (
    "a publisher needs a READY slot of the entry first, and whoever made that slot had seen the entry whole: the "
    "slot's release and acquire order the entry's fields too"
)
IMPLIED_BY_ACK = (
    "the rank read the plan before it acknowledged (release), and stores active_epoch only after it has read COMMITTED "
    "of that epoch; of the other fields an old value only says `not yet`"
)

VARIANTS = [
    Variant("acknowledge", "acknowledge"),
    Variant("ack_epoch stored relaxed", "acknowledge", [ACK_STORE]),
    Variant("ack_epoch loaded relaxed", "acknowledge", [ACK_LOAD]),
    Variant("replay", "replay"),
    Variant("no fence in replay", "replay", [FENCE]),
    Variant("replay's fence acquires and releases only", "replay", [FENCE_WEAK]),
    Variant("refuse", "refuse"),
    Variant("refused_epoch stored relaxed", "refuse", [REFUSED_STORE]),
    Variant("refused_epoch loaded relaxed by both readers", "refuse", [REFUSED_TALLY, REFUSED_REPLAY]),
    Variant("publish", "publish"),
    Variant("the word swapped relaxed", "publish", [PREPARED]),
    Variant("the word loaded relaxed by a rank", "publish", [WORD_LOAD]),
    Variant("agree", "agree"),
    Variant("a rank aborts without comparing", "agree", [ABORT_STORE]),
    Variant("the publisher commits without comparing", "agree", [COMMIT_STORE]),
    Variant("prepared before all have passed", "agree", [NOT_PASSED]),
    Variant("calls and active_epoch stored relaxed", "agree", [COUNTER_STORE, ACTIVE_STORE], IMPLIED_BY_ACK),
    Variant("calls loaded relaxed by lagom_counters", "agree", [COUNTER_LOAD], IMPLIED_BY_ACK),
    Variant("ring", "ring"),
    Variant("head stored relaxed", "ring", [HEAD_STORE]),
    Variant("head stored before the record", "ring", [HEAD_EARLY]),
    Variant("head loaded relaxed by the consumer", "ring", [HEAD_LOAD]),
    Variant("tail stored relaxed", "ring", [TAIL_STORE]),
    Variant("tail loaded relaxed by the producer", "ring", [TAIL_LOAD]),
    Variant("spans", "spans"),
    Variant("the turn given back relaxed", "spans", [TURN_STORE]),
    Variant("register", "register"),
    Variant("a slot's READY stored relaxed", "register", [SLOT_STORE]),
    Variant("a slot's READY loaded relaxed", "register", [SLOT_LOAD]),
    Variant("an entry's READY stored relaxed", "register", [ENTRY_STORE], IMPLIED_BY_SLOT),
    Variant("an entry's READY loaded relaxed", "register", [ENTRY_LOAD], IMPLIED_BY_SLOT),
    Variant("leave", "leave"),
    Variant("a slot's READY loaded relaxed by who leaves", "leave", [OWNER_LOAD]),
    Variant("who leaves marks slots that are not READY, too", "leave", [OWNER_OF_ANY]),
    Variant("detach", "detach"),
    Variant("the timeline's end stored relaxed", "detach", [ENDING_STORE]),
    Variant("the timeline's end loaded relaxed", "detach", [ENDING_LOAD]),
]


def missing() -> str:
    """Why the scenarios cannot run here; empty = they can."""
    return "" if shutil.which("g++") and shutil.which("gcc") else MISSING


def scaled_header(text: str) -> str:
    """The protocol with tables as small as the scenarios allow."""
    for name, value in SCALED.items():
        text, found = re.subn(rf"(#define {name}) \d+u", rf"\g<1> {value}u", text)
        if found != 1:
            raise ValueError(f"csrc/protocol/lagom_protocol.h defines {name} {found} times, not once; mend SCALED")
    return text


def edited(variant: Variant) -> dict[str, str]:
    """The variant's sources by path."""
    texts: dict[str, str] = {}
    for edit in variant.edits:
        text = texts.get(edit.source) or (ROOT / edit.source).read_text()
        if text.count(edit.text) != 1:
            raise ValueError(f"{variant.name}: {edit.source} has {edit.text!r} {text.count(edit.text)} times, not once")
        texts[edit.source] = text.replace(edit.text, edit.becomes)
    return texts


def runtime() -> Path:
    """The object of relacy_runtime.cpp, compiled when it or scenario.h is newer."""
    source, target = HERE / "relacy_runtime.cpp", BUILD / "relacy_runtime.o"
    with build_lock(BUILD):
        if not is_newer(target, [source, HERE / "scenario.h"]):
            subprocess.run([*CXX, "-c", str(source), "-o", str(target)], check=True)
    return target


def build(variant: Variant) -> Path:
    """Compiles the variant in a folder of its own and returns the program."""
    folder = BUILD / re.sub(r"\W+", "_", variant.name)
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("csrc", "tuner_plugin"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.o"))
    for source, text in edited(variant).items():
        (folder / source).write_text(text)
    header = folder / "csrc" / "protocol" / "lagom_protocol.h"
    header.write_text(scaled_header(header.read_text()))
    (folder / "scenario_chosen.c").write_text(f'#include "tests/memory_model/scenarios/{variant.scenario}.c"\n')
    subprocess.run([*CC, "-c", str(HERE / "unit.c"), "-o", "unit.o"], cwd=folder, check=True)
    subprocess.run(["g++", str(runtime()), "unit.o", "-o", "program"], cwd=folder, check=True)
    return folder / "program"


@dataclass(frozen=True)
class Outcome:
    """What the checker said of one variant."""

    variant: Variant
    violated: bool
    executions: int  # visited; 0 where the violation came early
    said: str

    @property
    def right(self) -> bool:
        """Whether it is what the variant promises."""
        return self.violated == bool(self.variant.edits and not self.variant.harmless)

    @property
    def line(self) -> str:
        """One line for people."""
        found = "violation found" if self.violated else f"no violation in {self.executions} executions"
        reason = f" (harmless: {self.variant.harmless})" if self.variant.harmless else ""
        return f"{'ok  ' if self.right else 'FAIL'} {self.variant.scenario:12} {self.variant.name}: {found}{reason}"


def search(variant: Variant, program: Path, *arguments: int) -> Outcome:
    """One search: random executions, or with a second argument all of at most so many preemptions."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{variant.name}: exit {done.returncode}: {done.stderr or done.stdout[-2000:]}")
    counts = [int(count) for count in re.findall(r"iterations: (\d+)", done.stdout)]
    return Outcome(variant, done.returncode == 1, counts[-1] if counts else 0, done.stdout)


def run(variant: Variant, executions: int = EXECUTIONS, preemptions: int = PREEMPTIONS) -> Outcome:
    """Builds and checks one variant: random executions first, then every one with few preemptions."""
    program = build(variant)
    outcome = search(variant, program, executions)
    if outcome.violated:
        return outcome
    bounded = search(variant, program, ALL_WITHIN_BOUND, preemptions)
    return replace(bounded, executions=executions + bounded.executions)


def main() -> int:
    """All variants; exit 0 = all as promised, 1 = one is not, 77 = there is no g++."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--executions", type=int, default=EXECUTIONS, help="random executions of each variant")
    parser.add_argument("--preemptions", type=int, default=PREEMPTIONS, help="then all executions with at most so many")
    arguments = parser.parse_args()
    if missing():
        print(f"skipped: {missing()}")
        return 77
    wrong = 0
    for variant in VARIANTS:
        outcome = run(variant, arguments.executions, arguments.preemptions)
        print(outcome.line, flush=True)
        if not outcome.right:
            wrong += 1
            print(outcome.said[-6000:])
    print(f"{len(VARIANTS) - wrong} of {len(VARIANTS)} as promised")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
