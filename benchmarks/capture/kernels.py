# SPDX-License-Identifier: Apache-2.0
"""Kernels of a step, whoever recorded them: X, Y and overlap, and how NCCL's were joined with their calls."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from lagom.wire.layout import NO_CALL

CUPTI, COMPUTE, COLLECTIVE, P2P = 3, 0, 1, 2
BY_NCCL = 2  # source of a span: NCCL's own timing, by the GPU's clock
JOIN_WORDS = ("not tried", "call", "slot", "ambiguous", "mismatch", "disputed", "no launch", "graph")


def merged(spans: np.ndarray) -> np.ndarray:
    """Union of [start, end) rows."""
    if not len(spans):
        return np.zeros((0, 2))
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(spans[:, 1])
    first = np.r_[True, spans[1:, 0] > ends[:-1]]
    return np.column_stack([spans[first, 0], np.r_[ends[:-1][first[1:]], ends[-1]]])


def length(spans: np.ndarray) -> float:
    """Busy time."""
    return float((merged(spans)[:, 1] - merged(spans)[:, 0]).sum())


def per_step(kernels: np.ndarray, nccl: np.ndarray, bounds: list[tuple[int, int]]) -> list[dict[str, float]]:
    """X, Y, overlap (ms) and counts of each step; ``kernels`` are [start, end) rows, ``nccl`` says which are NCCL's."""
    rows = []
    for begin, end in bounds:
        inside = (kernels[:, 0] >= begin) & (kernels[:, 0] < end)
        comm, compute = kernels[inside & nccl], kernels[inside & ~nccl]
        x, y, both = length(comm), length(compute), length(kernels[inside])
        counts = {"nccl": int((inside & nccl).sum()), "compute": int((inside & ~nccl).sum())}
        rows.append({"x": x / 1e6, "y": y / 1e6, "overlap": (x + y - both) / 1e6, **counts})
    return rows


def summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Median and spread of each quantity over steps."""
    if not rows:
        return {"steps": 0}
    found: dict[str, Any] = {"steps": len(rows)}
    for key in rows[0]:
        values = np.array([row[key] for row in rows])
        found[key] = {
            "median": round(float(np.median(values)), 4),
            "min": float(values.min()),
            "max": float(values.max()),
        }
    return found


def bounds_of(steps: list[dict[str, Any]], clock: str) -> list[tuple[int, int]]:
    """[begin, end) of whole steps on a clock: from one step's end to the next's."""
    return [(int(a[clock]), int(b[clock])) for a, b in itertools.pairwise(steps)]


def kineto_kernels(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(start and end on the wall clock, which are NCCL's) of a Kineto trace; copies are left out."""
    document = json.loads(path.read_text())
    base = int(document.get("baseTimeNanoseconds", 0))
    events = [e for e in document["traceEvents"] if e.get("cat") == "kernel" and e.get("ph") == "X"]
    start_ns = np.array([base + round(e["ts"] * 1000) for e in events], np.int64)
    taken = np.array([round(e["dur"] * 1000) for e in events], np.int64)
    rows = np.column_stack([start_ns, start_ns + taken]) if events else np.zeros((0, 2), np.int64)
    return rows, np.array([e["name"].startswith("ncclDevKernel") for e in events], bool)


def own_kernels(kernels: np.ndarray, process: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of our own records of one process."""
    spans = kernels[kernels["process"] == process]["span"]
    spans = spans[spans["source"] == CUPTI]
    rows = np.column_stack([spans["start_ns"], spans["end_ns"]]).astype(np.int64)
    return rows, np.isin(spans["kind"], (COLLECTIVE, P2P))


def joined(kernels: np.ndarray) -> dict[str, Any]:
    """Kernels of NCCL by how their join went, and P2P apart."""
    spans = kernels["span"][kernels["span"]["source"] == CUPTI]
    nccl = spans[spans["kind"] == COLLECTIVE]
    by_reason = Counter(JOIN_WORDS[min(int(j), 7)] for j in nccl["join"])
    return {
        "collectives": len(nccl),
        "joined": int((nccl["call"] != NO_CALL).sum()),
        "by_reason": dict(by_reason),
        "p2p": int((spans["kind"] == P2P).sum()),
        "compute": int((spans["kind"] == COMPUTE).sum()),
    }


def check_join(calls: np.ndarray, kernels: np.ndarray) -> dict[str, Any]:
    """Independent check: what the call records say of the calls that kernels were joined with. ``before_the_call_us``:
    by how much a kernel seems to have run before its call, at most: CUPTI's clock can be some 0.1 ms off the host's."""
    spans = kernels["span"][kernels["span"]["source"] == CUPTI]
    spans = spans[(spans["kind"] == COLLECTIVE) & (spans["call"] != NO_CALL)]
    known = {(int(row["slot"]), int(row["record"]["call"])): row["record"] for row in calls}
    pairs = [(span, known[key]) for span in spans if (key := (int(span["slot"]), int(span["call"]))) in known]
    function = sum(int(span["function"]) == int(call["function"]) for span, call in pairs)
    early = [int(call["time_ns"]) - int(span["start_ns"]) for span, call in pairs]
    twice = len(spans) - len({(int(s["slot"]), int(s["call"])) for s in spans})
    return {
        "compared": len(pairs), "same_function": function, "after_the_call": sum(by <= 0 for by in early),
        "before_the_call_us": max(0.0, max(early, default=0) / 1e3), "call_joined_twice": twice,
        **as_nccl_timed(kernels),
    }  # fmt: skip


def as_nccl_timed(kernels: np.ndarray) -> dict[str, Any]:
    """How far joined kernels are from NCCL's own times of the calls they were joined with: by their lengths at most,
    and by how much the two clocks seem to go apart in one process at most, us. A kernel joined with another iteration's
    call would be off by milliseconds."""
    pairs, lengths, apart = 0, 0.0, 0.0
    for process in np.unique(kernels["process"]):
        spans = kernels["span"][kernels["process"] == process]
        timed = {(int(s["slot"]), int(s["call"])): s for s in spans[spans["source"] == BY_NCCL]}
        ours = [s for s in spans if s["source"] == CUPTI and (int(s["slot"]), int(s["call"])) in timed]
        if not ours:
            continue
        theirs = [timed[int(s["slot"]), int(s["call"])] for s in ours]
        begins, ends = (
            np.array([int(a[name]) - int(b[name]) for a, b in zip(ours, theirs, strict=True)])
            for name in ("start_ns", "end_ns")
        )
        pairs += len(ours)
        lengths = max(lengths, float(np.abs(ends - begins).max()) / 1e3)
        apart = max(apart, float(begins.max() - begins.min()) / 1e3)
    return {"timed_by_nccl": pairs, "lengths_apart_us": round(lengths, 1), "clocks_apart_us": round(apart, 1)}
