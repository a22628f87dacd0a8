"""What is read from the region may be garbage: records that cannot be true are left out."""

from __future__ import annotations

import numpy as np
import pytest

from lagom.wire.layout import CALL_RECORD
from lagom.wire.views import plausible


@pytest.mark.parametrize(
    ("function", "algorithm", "protocol", "kept"),
    [
        (2, 1, 2, True),
        (2, -1, -1, True),
        (4, 6, 0, True),
        (5, 1, 2, False),
        (2, 20, 2, False),
        (2, 1, 3, False),
        (2, 1, -1, False),
        (2, -1, 0, False),
        (2, 7, 0, False),
        (4, 0, 0, True),
    ],
)
def test_records_that_cannot_be_true_are_left_out(function: int, algorithm: int, protocol: int, kept: bool) -> None:
    records = np.zeros(1, CALL_RECORD)
    records["function"], records["stock_algorithm"], records["stock_protocol"] = function, algorithm, protocol
    assert plausible(records).tolist() == [kept]


def test_random_bytes_never_name_what_does_not_exist() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 4096 * CALL_RECORD.itemsize, dtype=np.uint8)
    records = noise.view(CALL_RECORD)
    kept = records[plausible(records)]
    assert (kept["function"] < 5).all()
    assert (kept["stock_algorithm"] < 7).all()
