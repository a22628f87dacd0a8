# SPDX-License-Identifier: Apache-2.0
"""What cannot be written is one sentence, whichever of a command's results it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lagom.cli.main import app
from lagom.errors import UsageError
from lagom.report import page, style

DUMP = Path(__file__).resolve().parents[2] / "data" / "kernels_fsdp_6x_llama8b_layer_T2048_h200x8_rank0.txt.gz"


@pytest.mark.parametrize("name", ["profile.html", "timeline.png", "trace.json.gz"])
def test_a_folder_in_the_way_of_a_result_is_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    ran = CliRunner().invoke(app, ["profile", "--trace", str(DUMP), "--out", str(tmp_path)])
    assert isinstance(ran.exception, UsageError), ran.exception
    assert str(ran.exception).startswith(f"{tmp_path / name} cannot be written (Is a directory); ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_is_one_sentence() -> None:
    figure, _ = style.new_figure(1, 1)
    with pytest.raises(UsageError, match=r"^/dev/full cannot be written \(No space left on device\); make room"):
        style.save_png(figure, Path("/dev/full"))
    with pytest.raises(UsageError, match="make room"):
        page.write(Path("/dev/full"), "text")


def test_names_that_are_no_letters_go_into_a_page(tmp_path: Path) -> None:
    page.write(tmp_path / "page.html", os.fsdecode(b"\xff.json"))
    assert (tmp_path / "page.html").read_text(encoding="utf-8").endswith(".json")
