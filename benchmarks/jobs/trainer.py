# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer with FSDP, its loop and its wrapping: only the model's size and the random data are ours.

torchrun --nproc-per-node 8 trainer.py --layers 3 --tokens 8192 --steps 200
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time

import torch
from common import clocks
from models import build
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random sequences; the same number always gives the same one."""

    def __init__(self, count: int, length: int, vocab: int) -> None:
        self._count, self._length, self._vocab = count, length, vocab

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        drawn = torch.randint(self._vocab, (self._length,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": drawn, "labels": drawn}


class Clock(TrainerCallback):
    """One JSON line a step on the first rank, as the other jobs print it."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def on_step_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[no-untyped-def]
        self._began = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs) -> None:  # type: ignore[no-untyped-def]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if state.is_world_process_zero:
            took = (time.perf_counter() - self._began) * 1e3
            print(json.dumps({"step": state.global_step, "ms": round(took, 3), **clocks()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama3_8b")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=8192, help="per GPU and step")
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    sequence = min(arguments.sequence, arguments.tokens)
    model = build(arguments.shape, arguments.layers, arguments.vocab, sequence, torch.device("cpu"))
    on_gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as out:
        settings = TrainingArguments(
            output_dir=out, max_steps=arguments.steps, per_device_train_batch_size=arguments.tokens // sequence,
            bf16=on_gpu, use_cpu=not on_gpu, save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=50,
            fsdp="full_shard auto_wrap", seed=0,
            fsdp_config={"fsdp_version": 2, "transformer_layer_cls_to_wrap": sorted(model._no_split_modules)},
        )  # fmt: skip
        data = Tokens(1 << 16, sequence, arguments.vocab)
        Trainer(model=model, args=settings, train_dataset=data, callbacks=[Clock()]).train()


if __name__ == "__main__":
    main()
