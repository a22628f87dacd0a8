"""What is said before a benchmark begins."""

from __future__ import annotations

from pathlib import Path

from lagom.bench import Request, parse_arms
from lagom.bench.preview import preview


def said(words: str, metric: str = "") -> list[str]:
    return list(preview(Request(("train",), parse_arms([words]), Path(), metric=metric, rounds=6, samples=30)))


def test_the_number_of_processes_and_when_each_ends_is_said() -> None:
    (wall,) = said("stock,lagom,static,off")
    assert wall.startswith("18 processes of the job for own:stock, off (6 rounds, stock twice in each): ")
    assert "runs to its own end" in wall
    assert "--metric" in wall
    (metric,) = said("stock,lagom,static,off", metric="t=(.*)")
    assert metric.startswith("18 processes")
    assert "ended after 30 steady samples of the metric" in metric
    (calls,) = said("env=A=1,env=B=1")
    assert calls.startswith("24 processes")
    assert "how fast it calls NCCL" in calls


def test_nothing_is_said_where_one_job_is_enough() -> None:
    assert said("stock,lagom,static") == []


def test_an_arm_that_would_come_to_nothing_is_named() -> None:
    assert "own:lagom tunes" in said("own:lagom,off")[1]
    assert len(said("own:lagom,off", metric="t=(.*)")) == 1
    assert len(said("own:lagom")) == 1, "its calls are counted"
