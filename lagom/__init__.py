"""Lagom: just the right amount of communication. An auto-tuner for stock NCCL in distributed PyTorch training."""

__version__ = "0.1.0"
