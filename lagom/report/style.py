# SPDX-License-Identifier: Apache-2.0
"""Colours, and how a figure becomes a file: one look for every picture."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lagom.files import write_named

INK = "#22272e"
FAINT = "#8a929c"
GRID = "#e6e8eb"
LOSS = "#c62828"  # time lost to contention
IDLE = "#f1f2f4"
BOTH = "#3f7d58"  # compute with communication beside it: time well hidden
EXPOSED = "#c9662b"

COMMUNICATION = {
    "allgather": "#2f6fb3",
    "reducescatter": "#7a4fa3",
    "allreduce": "#15808d",
    "broadcast": "#5b7f95",
    "reduce": "#5b7f95",
    "collective": "#5b7f95",
    "p2p": "#8d99a6",
}
COMPUTE = {
    "matmul": "#e3a63a",
    "attention": "#cf7f45",
    "norm": "#b9b29a",
    "elementwise": "#c9c4b4",
    "copy": "#a9b7a4",
    "reduce": "#bcae9f",
    "optimizer": "#a3adb8",
    "other": "#d3cfc4",
}
#: Verdicts of a search's moves.
VERDICT = {
    "better": "#3f7d58", "confirmed": "#1f5a38", "worse": LOSS, "rejected": LOSS, "tie": FAINT, "missing": "#d0d4d9",
    "baseline": "#2f6fb3",
}  # fmt: skip

_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": "white",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "lagom",  # equal input, equal file
}


_METADATA = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)

Arguments = ParamSpec("Arguments")


Drawn = TypeVar("Drawn", bound=Figure | None)


def styled(draw: Callable[Arguments, Drawn]) -> Callable[Arguments, Drawn]:
    """A figure function under our look, whatever the look of the process is."""

    @wraps(draw)
    def inside(*args: Arguments.args, **options: Arguments.kwargs) -> Drawn:
        with mpl.rc_context(_RC):
            return draw(*args, **options)

    return inside


def new_figure(width: float, height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure in inches and its axes, one above the other; no pyplot, so nothing global is left behind."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, [axes for row in figure.subplots(rows, 1, squeeze=False) for axes in row]


def save_png(figure: Figure, path: Path) -> None:
    """The figure as a PNG at 150 dpi. Raises :class:`UsageError`."""
    buffer = io.BytesIO()
    with mpl.rc_context(_RC):
        figure.savefig(buffer, format="png", dpi=150)
    write_named(path, buffer.getvalue())


def to_svg(figure: Figure) -> str:
    """The figure as an ``<svg>`` element for a page, without XML prologue or date."""
    buffer = io.StringIO()
    with mpl.rc_context(_RC):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return _METADATA.sub("", text[text.index("<svg") :])
