# SPDX-License-Identifier: Apache-2.0
"""Hugging Face models of the sizes that papers name: random weights, fewer layers, never narrower ones.

A ``tiny_`` shape has the same structure and is for trying a job without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, MptConfig, MptForCausalLM, PhiConfig, PhiForCausalLM


def _llama(hidden: int, inner: int, heads: int, kv_heads: int) -> Callable[[int, int, int], nn.Module]:
    def build(layers: int, vocab: int, positions: int) -> nn.Module:
        config = LlamaConfig(
            hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, num_key_value_heads=kv_heads,
            num_hidden_layers=layers, vocab_size=vocab, max_position_embeddings=positions, use_cache=False,
            attn_implementation="sdpa",
        )  # fmt: skip
        return LlamaForCausalLM(config)

    return build


def _phi(hidden: int, inner: int, heads: int) -> Callable[[int, int, int], nn.Module]:
    def build(layers: int, vocab: int, positions: int) -> nn.Module:
        config = PhiConfig(
            hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, partial_rotary_factor=0.4,
            num_hidden_layers=layers, vocab_size=vocab, max_position_embeddings=positions, use_cache=False,
            attn_implementation="sdpa", resid_pdrop=0.0,
        )  # fmt: skip
        return PhiForCausalLM(config)

    return build


def _mpt(hidden: int, heads: int) -> Callable[[int, int, int], nn.Module]:
    def build(layers: int, vocab: int, positions: int) -> nn.Module:
        config = MptConfig(
            d_model=hidden, n_heads=heads, n_layers=layers, expansion_ratio=4, vocab_size=vocab,
            max_seq_len=positions, use_cache=False,
        )  # fmt: skip
        return MptForCausalLM(config)

    return build


#: Name: (how to build it, its own vocabulary, the sequence it was trained with).
SHAPES: dict[str, tuple[Callable[[int, int, int], nn.Module], int, int]] = {
    "llama3_8b": (_llama(4096, 14336, 32, 8), 128256, 4096),
    "phi2_2b": (_phi(2560, 10240, 32), 51200, 2048),
    "mpt_7b": (_mpt(4096, 32), 50432, 2048),
    "tiny_llama": (_llama(128, 448, 4, 2), 512, 64),
    "tiny_phi": (_phi(128, 512, 4), 512, 64),
    "tiny_mpt": (_mpt(128, 4), 512, 64),
}


def build(shape: str, layers: int, vocab: int, positions: int, device: torch.device) -> nn.Module:
    """The model on ``device``, fp32 parameters as training frameworks keep them; ``vocab`` 0 = the model's own."""
    make, own_vocab, _ = SHAPES[shape]
    with device:
        return make(layers, vocab or own_vocab, positions)


def layers_of(model: nn.Module) -> nn.ModuleList:
    """The stack of transformer layers, whatever the family calls it."""
    body: Any = getattr(model, "model", None) or getattr(model, "transformer", None)
    found = getattr(body, "layers", None) or getattr(body, "blocks", None)
    if not isinstance(found, nn.ModuleList):
        raise TypeError(f"{type(model).__name__} has no stack of layers that this script knows")
    return found
