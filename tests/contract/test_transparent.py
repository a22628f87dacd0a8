# SPDX-License-Identifier: Apache-2.0
"""Which calls advance a program: the C half, which decides in every rank, and the Python half, which learns the
iteration, say the same of every size around the limit and of every function."""

from __future__ import annotations

import pytest

from lagom.program.detect import is_transparent
from lagom.records import Function
from lagom.wire.layout import TRANSPARENT_BELOW_BYTES, ffi
from lagom.wire.library import library

BAD_TRANSPARENT = 9  # enum lagom_plan_fault, csrc/plan/plan.h
SIZES = (1, TRANSPARENT_BELOW_BYTES - 1, TRANSPARENT_BELOW_BYTES, TRANSPARENT_BELOW_BYTES + 1, 1 << 30)


def refused_as_transparent(function: int, size: int) -> bool:
    """What C says of a plan whose only position is such a call: it could never advance."""
    plan = ffi.new("struct lagom_plan *")
    plan.epoch, plan.comm_id, plan.start_call = 1, 42, 1
    plan.position_count = plan.site_count = 1
    plan.sites[0].bytes, plan.sites[0].function = size, function
    for config in (plan.sites[0].incumbent, plan.sites[0].candidate):
        config.algorithm = config.protocol = -1
    plan.hash = library().lagom_plan_hash(plan)
    text = ffi.string(library().lagom_plan_fault_text(library().lagom_plan_check(plan, 42))).decode()
    wanted = ffi.string(library().lagom_plan_fault_text(BAD_TRANSPARENT)).decode()
    return text == wanted


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("function", [one for one in Function if one <= Function.ALL_REDUCE])
def test_both_halves_agree_on_what_advances_a_program(function: Function, size: int) -> None:
    wanted = size < 65536 or function in (Function.BROADCAST, Function.REDUCE)
    assert is_transparent(function, size) == wanted
    assert refused_as_transparent(function, size) == wanted
