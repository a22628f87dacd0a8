"""The shipped orderings hold under a C11 memory model, and weakening any of them that matters is found."""

from __future__ import annotations

import os

import pytest

from tests.memory_model import run

FULL = os.environ.get("LAGOM_TEST_FULL", "") == "1"
CHECKER = pytest.mark.skipif(bool(run.missing()), reason=f"{run.missing()}; then: make memory-model")
HOLDING = [variant for variant in run.VARIANTS if not variant.edits]
WEAKENED = [variant for variant in run.VARIANTS if variant.edits]


@CHECKER
@pytest.mark.parametrize("variant", HOLDING, ids=lambda variant: variant.name)
def test_shipped_orderings_hold(variant: run.Variant) -> None:
    """No execution that was visited violates the scenario."""
    outcome = run.run(variant, preemptions=2 if FULL and variant.name != "acknowledge" else 1)
    assert outcome.right, outcome.said[-4000:]


@CHECKER
@pytest.mark.parametrize("variant", WEAKENED, ids=lambda variant: variant.name)
def test_weakened_ordering(variant: run.Variant) -> None:
    """A planted fault is found, unless it is declared harmless; then it is not."""
    outcome = run.run(variant)
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
