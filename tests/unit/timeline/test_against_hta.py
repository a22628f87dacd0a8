# SPDX-License-Identifier: Apache-2.0
"""The same Kineto trace through HolisticTraceAnalysis and through ours: overlap ratio, X and Y within 0.1 %.

Runs over every ``tests/data/kineto/*.json.gz``; a trace dropped there is covered by that alone. HTA rounds times to µs
unless told not to; both sides work on the trace's own ns here.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from timeline_helpers import DATA

import lagom
from lagom.timeline import load
from lagom.timeline.busy_times import Busy
from lagom.timeline.kernel_names import plain_name

os.environ.setdefault("HTA_DISABLE_NS_ROUNDING", "1")
pytest.importorskip("hta", reason="HolisticTraceAnalysis is not installed; `make dev` does it")

TRACES = sorted((DATA / "kineto").glob("*.json.gz"))
TOLERANCE = 1e-3


def test_there_are_traces() -> None:
    assert len(TRACES) >= 5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_overlap_x_and_y_agree(path: Path) -> None:
    ratio, x, y, passed_over = through_hta(path)
    (table,) = load(path)
    ours = np.array([plain_name(name) not in passed_over for name in table.names])
    same_kernels = table.only(ours[table.name])
    busy = Busy.of(same_kernels)
    times = busy.between(table.start.min(), table.end.max())
    assert float(times.x) / 1000 == pytest.approx(x, rel=TOLERANCE)
    assert float(times.y) / 1000 == pytest.approx(y, rel=TOLERANCE)
    assert float(times.overlap_ratio) * 100 == pytest.approx(ratio, rel=TOLERANCE, abs=0.0051)  # HTA gives two decimals
    (rank,) = lagom.overlap(same_kernels).ranks
    assert rank.overlap_ratio == float(times.overlap_ratio)


def through_hta(path: Path) -> tuple[float, float, float, set[str]]:
    """Overlap in percent as HTA reports it, the lengths of its merged communication and compute intervals in µs, and
    the kernels it puts in no class: those with ``Sync`` or ``Memcpy`` anywhere in their name (``SyncBatchNorm`` is
    one)."""
    from hta.analyzers.communication_analysis import CommunicationAnalysis
    from hta.common.trace import Trace
    from hta.utils.utils import KernelType, get_kernel_type, merge_kernel_intervals

    trace = Trace(trace_files={0: str(path)}, trace_dir="")
    trace.parse_traces(max_ranks=1, use_multiprocessing=False)
    trace.decode_symbol_ids(use_shorten_name=False)
    overlap = CommunicationAnalysis.get_comm_comp_overlap(trace, visualize=False)
    frame = trace.get_trace(0)
    frame = frame[frame["stream"].ne(-1)]
    names = trace.symbol_table.get_sym_table()
    kinds = frame["name"].map(lambda name: get_kernel_type(names[name]))
    lengths = []
    for kind in (KernelType.COMMUNICATION, KernelType.COMPUTATION):
        merged = merge_kernel_intervals(frame[kinds == kind.name].copy())
        lengths.append(float((merged["end"] - merged["ts"]).sum()))
    other = {names[name] for name in frame["name"][kinds == KernelType.OTHER.name]}
    return float(overlap["comp_comm_overlap_pctg"].iloc[0]), lengths[0], lengths[1], other
