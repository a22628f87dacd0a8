# SPDX-License-Identifier: Apache-2.0
"""The learning windows: every site sees every level, sites differ within a window, rungs are legal and below NCCL's."""

from __future__ import annotations

import itertools

from lagom.search.strategies.guided import LEVELS, LEVELS_WITHOUT_CHUNK, latin_square, nearest_rung


def test_every_site_sees_every_level_once_however_many_sites() -> None:
    for sites in (1, 2, 3, 7, 16):
        rows = latin_square(3, sites)
        assert all(sorted(row[site] for row in rows) == [0, 1, 2] for site in range(sites))


def test_neighbours_differ_within_a_window() -> None:
    assert all(a != b for row in latin_square(3, 6) for a, b in itertools.pairwise(row))


def test_three_windows_serve_any_number_of_sites() -> None:
    assert len(latin_square(len(LEVELS), 16)) == 3
    assert all(c == 1.0 for _, c in LEVELS_WITHOUT_CHUNK)


def test_rungs_are_below_the_base_unless_there_is_nothing_below() -> None:
    channels = (1, 2, 3, 4, 6, 8, 12, 16, 24)
    assert channels[nearest_rung(channels, 8, 0.5)] == 12
    assert channels[nearest_rung(channels, 3, 0.5)] == 2
    assert channels[nearest_rung(channels, 3, 0.99)] == 3
    assert nearest_rung((1,), 0, 0.5) == 0
    assert nearest_rung(channels, 8, 1.0) == 8
