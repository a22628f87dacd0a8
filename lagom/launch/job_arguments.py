# SPDX-License-Identifier: Apache-2.0
"""Arguments of a job that are others at each start without making another program: seeds, output folders, ports, names
of runs, dates, and how long it runs. Any other argument may change how long the job computes beside its collectives,
which no call to NCCL shows: what was faster with 16,384 tokens may be slower with 8,192."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

OPTION = re.compile(r"(?P<name>-{1,2}[A-Za-z][\w.-]*|[A-Za-z_][\w.]*(?==))(?:=(?P<value>.*))?", re.DOTALL)
NUMBER = re.compile(r"[\d.,]+")
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T_-]?\d\d[:-]?\d\d(?:[:-]?\d\d)?)?|\d{6,}")
#: Parts of an option's name.
DIFFERING = {
    "seed", "port", "out", "output", "outdir", "outputs", "dir", "folder", "log", "logs", "logdir", "logging", "save",
    "run", "trial", "date", "timestamp", "tag", "wandb", "exp", "experiment", "job", "resume",
}  # fmt: skip
#: With one of these, too, it is no folder of results and no run's name: ``--data-dir``, ``--output-size``.
SIZING = {
    "data", "dataset", "model", "config", "tokenizer", "size", "dim", "features", "channels", "width", "length", "len",
    "layers", "batch", "tokens", "proj", "projection", "type", "dtype",
}  # fmt: skip
#: Whole names: how long the job runs.
LENGTHS = {
    "steps", "max-steps", "num-steps", "total-steps", "training-steps", "iterations", "iters", "max-iters",
    "train-iters", "epochs", "max-epochs", "num-epochs", "num-train-epochs", "training.steps", "trainer.max-steps",
    "trainer.max-epochs",
}  # fmt: skip


def arguments_that_stay(words: Sequence[str]) -> list[str]:
    """The words of a command, an option with its value as one, without those that differ at each start; of a date
    within a word ``#`` is left. The text of ``bash -c`` is read as words, too."""
    return [_without_date(text) for text in _stay(" ".join(words).split())]


def _without_date(text: str) -> str:
    """A number alone is no date."""
    return text if NUMBER.fullmatch(re.split("[= ]", text)[-1]) else DATE.sub("#", text)


def _stay(words: Sequence[str]) -> Iterator[str]:
    at = 0
    while at < len(words):
        option = OPTION.fullmatch(words[at])
        follows = words[at + 1] if at + 1 < len(words) else "-"
        is_alone = option is None or option["value"] is not None or follows.startswith("-")
        text = words[at] if is_alone else f"{words[at]} {follows}"
        if option is None or not _differs(option["name"], option["value"] or ("" if is_alone else follows)):
            yield text
        at += 1 if is_alone else 2


def _differs(name: str, value: str) -> bool:
    plain = name.lstrip("-").replace("_", "-").lower()
    parts = set(re.split(r"[.-]", plain))
    if plain in LENGTHS:
        return True
    is_size = parts & {"out", "output"} and NUMBER.fullmatch(value)
    return bool(parts & DIFFERING) and not parts & SIZING and not is_size
