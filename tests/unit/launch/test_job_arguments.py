# SPDX-License-Identifier: Apache-2.0
"""Which arguments may be others at a start of the same program, and which may not."""

from __future__ import annotations

import shlex

import pytest

from lagom.launch.job_arguments import arguments_that_stay


def stay(command: str) -> list[str]:
    return arguments_that_stay(shlex.split(command))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("t.py --seed 1", "t.py --seed 2"),
        ("t.py --seed=1 --bf16", "t.py --bf16"),
        ("t.py trainer.seed=1 hydra.run.dir=outputs/a", "t.py trainer.seed=2"),
        ("t.py --output_dir out/a --logging-steps 10", "t.py --output_dir out/b --logging-steps 5"),
        ("t.py --run-name a --resume", "t.py --run-name b"),
        ("t.py --wandb_project=x --exp-id 7", "t.py"),
        ("t.py --max-steps 100", "t.py --max-steps 20000"),
        ("t.py runs/2026-11-28_0712", "t.py runs/2026-11-29_1855"),
        ("t.py runs/20261128-071200/x", "t.py runs/20261129-071200/x"),
        ("SEED=1 python t.py", "SEED=2 python t.py"),
        ("bash -c 'python t.py --seed 1'", "bash -c 'python t.py --seed 2'"),
    ],
)
def test_what_is_another_at_each_start_makes_no_other_program(one: str, other: str) -> None:
    assert stay(one) == stay(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("t.py --hidden-size 4096", "t.py --hidden-size 8192"),
        ("t.py --tokens 512", "t.py --tokens 1024"),
        ("t.py --tokens=1048576", "t.py --tokens=2097152"),
        ("t.py 1048576", "t.py 2097152"),
        ("t.py --batch-size 1", "t.py --batch-size 8"),
        ("t.py --model-dir a", "t.py --model-dir b"),
        ("t.py --data-dir a", "t.py --data-dir b"),
        ("t.py --out 512", "t.py --out 1024"),
        ("t.py --output-size 512", "t.py --output-size 1024"),
        ("t.py --dropout 0.1", "t.py --dropout 0.2"),
        ("t.py --config a.yaml", "t.py --config b.yaml"),
        ("t.py model.run_layers=2", "t.py model.run_layers=3"),
        ("t.py --compile", "t.py"),
        ("t.py --gradient-accumulation-steps 2", "t.py --gradient-accumulation-steps 4"),
        ("runs/20261128/a.py", "runs/20261128/b.py"),
        ("torchrun --nproc-per-node 8 t.py --seed 1", "torchrun --nproc-per-node 4 t.py --seed 1"),
        ("bash -c 'python t.py --seed 1'", "bash -c 'python u.py --seed 1'"),
    ],
)
def test_whatever_else_differs_may_be_another_program(one: str, other: str) -> None:
    assert stay(one) != stay(other)
