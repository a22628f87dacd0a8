"""Which environment samples were taken in: two of them do not belong into one file of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lagom.bench.process import OURS, PLUGINS

#: Variables that make another job of the same command line.
FINGERPRINTED = ("NCCL_", "LAGOM_", "TORCH_NCCL_", "CUDA_DEVICE_MAX_CONNECTIONS", "LD_PRELOAD")
#: Of these, what a process is given anew in any case, and what only says where something lies, how much is told, or
#: which commit the evidence is signed with (``tests/evidence.py``).
NOT_FINGERPRINTED = (
    *OURS,
    *PLUGINS,
    "LAGOM_SHM_DIR",
    "LAGOM_PYTHON",
    "LAGOM_LOG_LEVEL",
    "LAGOM_COMMIT",
    "NCCL_DEBUG_FILE",
)


def env_fingerprint(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that must be the same for two samples to be compared."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(FINGERPRINTED) and name not in NOT_FINGERPRINTED
    }


def fingerprint_differences(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """``NCCL_ALGO was Ring and is not set``, of each variable that is not the same."""
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            yield f"{name} was {_value_text(then.get(name))} and is {_value_text(now.get(name))}"


def _value_text(value: str | None) -> str:
    return "not set" if value is None else value or "empty"
