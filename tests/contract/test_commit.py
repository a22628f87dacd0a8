# SPDX-License-Identifier: Apache-2.0
"""The newest commit has a subject that fits and a body that says why, as CONTRIBUTING.md wants."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUBJECT = 72


def faults(message: str) -> list[str]:
    subject, _, body = message.strip().partition("\n")
    return [
        *([f"the subject has {len(subject)} characters, {SUBJECT} are allowed"] if len(subject) > SUBJECT else []),
        *([] if ": " in subject else ["the subject begins with no area, as in `search: `"]),
        *([] if body.strip() else ["there is no body: say why"]),
    ]


def test_the_newest_commit_says_what_and_why() -> None:
    # With a path, so that an empty commit which somebody's CI adds does not count.
    command = ["git", "log", "-1", "--no-merges", "--format=%B", "--", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        pytest.skip("this is no checkout of git")
    assert faults(done.stdout) == [], done.stdout


def test_what_is_wrong_with_a_message_is_said() -> None:
    assert faults("search: the leader is measured again\n\nIt was noise.") == []
    assert faults(f"search: {'x' * 70}\n\nWhy.") == ["the subject has 78 characters, 72 are allowed"]
    assert faults("the leader\n") == ["the subject begins with no area, as in `search: `", "there is no body: say why"]
