# SPDX-License-Identifier: Apache-2.0
"""``lagom demo``: the whole system on this machine, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lagom.files import check_named


def demo(
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write the result to this file.", show_default=False),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="SECONDS", help="Time limit of the search.", min=5)
    ] = 50.0,
) -> None:
    """Watch a simulated job being tuned: 8 virtual ranks of an FSDP Llama-3-8B on simulated A40s.

    The ranks are real processes that load the real plugin and call it as NCCL does; controller and search are the real
    ones. Only the GPUs and the clock are simulated.
    """
    if json_file is not None:
        check_named(json_file)
    from lagom.demo.run_demo import run_demo
    from lagom.experiment.process import leave_in_order

    leave_in_order()
    raise typer.Exit(run_demo(json_file=json_file, seconds=seconds))
