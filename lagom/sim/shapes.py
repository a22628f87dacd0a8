"""Shapes of the models of the paper's Table 2, from their published configurations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed part of a mixture-of-experts layer: ``count`` experts of width ``ffn``, ``active`` a token, and
    ``shared`` more that every token passes."""

    count: int
    active: int
    ffn: int
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder-only transformer. ``gated``: the MLP has three matrices (SwiGLU), else two. ``sequence`` is the context
    it was trained with, which the paper's runs are taken to use (it does not say)."""

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    gated: bool
    sequence: int
    tied: bool = False
    experts: Experts | None = None

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_size

    @property
    def mlp_matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def layer_parameters(self) -> int:
        """Of one dense layer: attention and MLP (norms and biases are below 0.1 %)."""
        attention = self.hidden * (2 * self.hidden + 2 * self.kv_width)
        return attention + self.mlp_matrices * self.hidden * self.ffn

    @property
    def root_parameters(self) -> int:
        """Embedding and head."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)


LLAMA3_8B = Shape("llama3_8b", 32, 4096, 14336, 32, 8, 128256, True, 4096)  # trained at 8192; 4096 fits 48 GB cards
PHI2_2B = Shape("phi2_2b", 32, 2560, 10240, 32, 32, 51200, False, 2048)
MPT_7B = Shape("mpt_7b", 32, 4096, 16384, 32, 32, 50432, False, 2048, tied=True)
DEEPSEEK_MOE_16B = Shape(
    "deepseek_moe_16b", 28, 2048, 10944, 16, 16, 102400, True, 4096, experts=Experts(64, 6, 1408, shared=2)
)
OLMOE_1B_7B = Shape("olmoe_1b_7b", 16, 2048, 1024, 16, 16, 50304, True, 4096, experts=Experts(64, 8, 1024))

SHAPES = {shape.name: shape for shape in (LLAMA3_8B, PHI2_2B, MPT_7B, DEEPSEEK_MOE_16B, OLMOE_1B_7B)}
