# SPDX-License-Identifier: Apache-2.0
"""The shipped orderings hold under a C11 memory model, and weakening any of them that matters is found."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.memory_model import run
from tests.processor_time import shared
from tests.tiers import FULL, amount

#: Random executions of each variant; with 700 every planted fault is found.
EXECUTIONS = amount(5_000, run.EXECUTIONS)
CHECKER = pytest.mark.skipif(bool(run.missing()), reason=f"{run.missing()}; then: make memory-model")
HOLDING = [variant for variant in run.VARIANTS if not variant.edits]
WEAKENED = [variant for variant in run.VARIANTS if variant.edits]


@pytest.fixture(scope="module", autouse=True)
def compiled_runtime() -> None:
    if not run.missing():
        with shared("Relacy"):
            run.runtime()


@CHECKER
@pytest.mark.parametrize("variant", HOLDING, ids=lambda variant: variant.name)
def test_shipped_orderings_hold(variant: run.Variant) -> None:
    """No execution that was visited violates the scenario."""
    outcome = run.run(variant, EXECUTIONS, preemptions=2 if FULL and variant.name != "acknowledge" else 1)
    assert outcome.right, outcome.said[-4000:]


@CHECKER
@pytest.mark.parametrize("variant", WEAKENED, ids=lambda variant: variant.name)
def test_weakened_ordering(variant: run.Variant) -> None:
    """A planted fault is found, unless it is declared harmless; then it is not."""
    outcome = run.run(variant, EXECUTIONS)
    assert outcome.right, outcome.line


@pytest.mark.parametrize("variant", WEAKENED, ids=lambda variant: variant.name)
def test_variant_fits_the_source(variant: run.Variant) -> None:
    """What a variant replaces is in the source once: this runs without the checker, too."""
    assert run.edited(variant)


def test_tables_can_be_made_smaller() -> None:
    """The constants that are made smaller are defined where they are looked for."""
    header = run.ROOT / "csrc" / "protocol" / "lagom_protocol.h"
    assert f"LAGOM_MAX_SLOTS {run.SCALED['LAGOM_MAX_SLOTS']}u" in run.scaled_header(header.read_text())


def test_every_scenario_is_run_as_shipped() -> None:
    """A scenario without a variant that must hold would never be looked at."""
    there = {path.stem for path in (run.HERE / "scenarios").glob("*.c")}
    assert there == {variant.scenario for variant in HOLDING} == {variant.scenario for variant in WEAKENED}


GENMC = shutil.which("genmc")
LITMUS = [
    ("fence", [], True, True),
    ("fence", ["-DFENCE=memory_order_acq_rel"], False, False),
    ("reuse", [], True, True),
    ("reuse", ["-DACK=memory_order_relaxed"], True, False),
]


@pytest.mark.skipif(
    GENMC is None, reason="GenMC is in no distribution; with `genmc` (0.10) on PATH: pytest tests/memory_model"
)
@pytest.mark.parametrize(("name", "flags", "rc11", "imm"), LITMUS)
def test_litmus(name: str, flags: list[str], rc11: bool, imm: bool) -> None:
    """Every execution of a small extract, also those with load buffering (IMM), which Relacy does not have."""
    source = str(run.HERE / "litmus" / f"{name}.c")
    for model, holds in (("--rc11", rc11), ("--imm", imm)):
        command = [str(GENMC), model, "--disable-estimation", "--", *flags, source]
        said = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        text = said.stdout + said.stderr
        assert ("No errors were detected" in text, "Safety violation" in text) == (holds, not holds), text


def test_litmus_is_what_the_source_says() -> None:
    """The orderings that the litmus programs are written with are those of the macros that the source uses."""
    header = (run.ROOT / run.ATOMIC).read_text()
    assert "lagom_store_release(pointer, value) __atomic_store_n((pointer), (value), __ATOMIC_RELEASE)" in header
    assert "lagom_load_acquire(pointer) __atomic_load_n((pointer), __ATOMIC_ACQUIRE)" in header
    for edit in (run.ACK_STORE, run.ACK_LOAD, run.FENCE, run.FENCE_WEAK):
        assert (run.ROOT / edit.source).read_text().count(edit.text) == 1
    acknowledge = (run.ROOT / run.AGREEMENT).read_text()
    order = [
        acknowledge.index(text) for text in (run.ACK_STORE.text, run.FENCE.text, "lagom_publish_poll(agreement->replay")
    ]
    assert order == sorted(order)
