# SPDX-License-Identifier: Apache-2.0
"""What a test is charged for, and when it counts as too expensive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import processor_time
from tests.processor_time import LIMIT_S, has_a_limit, processor_seconds, shared, shared_s, too_expensive
from tests.tiers import EXPENSIVE, FULL

ROOT = Path(__file__).resolve().parents[2]
COMPUTE = "import os\nwhile sum(os.times()[:2]) < 0.2: pass\nprint(flush=True)\ninput()"


@pytest.mark.skipif(not list(Path("/proc/self/task").glob("*/children")), reason="this kernel lists no children")
def test_children_are_charged_while_they_live_and_only_once() -> None:
    began = processor_seconds()
    with subprocess.Popen([sys.executable, "-c", COMPUTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        lived = processor_seconds() - began
        child.communicate(b"\n")
    assert lived >= 0.15, "the kernel counts in hundredths of a second"
    assert 0.15 <= processor_seconds() - began < lived + 0.15


def test_what_tests_share_is_charged_apart() -> None:
    shared_s.clear()
    with shared("compiling"):
        subprocess.run([sys.executable, "-c", COMPUTE], input=b"\n", stdout=subprocess.DEVNULL, check=True)
    assert shared_s["compiling"] >= 0.2
    shared_s.clear()


def test_only_where_it_is_asked_for_does_an_expensive_test_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "ENFORCED", False)
    assert not has_a_limit("tests/unit/gpu/test_rehearsal.py::test_rehearsal")
    monkeypatch.setattr(processor_time, "ENFORCED", True)
    assert has_a_limit("tests/unit/gpu/test_rehearsal.py::test_rehearsal") or FULL
    assert not has_a_limit("tests/gpu/test_exact.py::test_exact")


def test_the_limit_grows_with_the_slowness_of_the_machine_and_a_named_test_has_none() -> None:
    assert too_expensive("tests/x.py::test", LIMIT_S, 1.0) == ""
    assert "8 s are allowed" in too_expensive("tests/x.py::test", LIMIT_S + 0.1, 1.0)
    assert "8 s are allowed" in too_expensive("tests/x.py::test", LIMIT_S + 0.1, 0.5), "a fast one gets no less"
    assert too_expensive("tests/x.py::test", 2 * LIMIT_S, 2.0) == ""
    named = next(iter(EXPENSIVE))
    assert too_expensive(f"tests/native/{named}", 100.0, 1.0) == ""


@pytest.mark.parametrize("name", EXPENSIVE)
def test_every_expensive_test_is_there_and_has_a_reason(name: str) -> None:
    file, _, test = name.partition("::")
    files = (ROOT / "tests").rglob(file)  # several folders may have a file of this name
    assert any(f"def {test.partition('[')[0]}(" in found.read_text() for found in files)
    assert len(EXPENSIVE[name]) > 20
