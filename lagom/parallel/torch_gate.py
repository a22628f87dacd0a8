# SPDX-License-Identifier: Apache-2.0
"""Which torch this package can use, and the private names of torch that it needs: each behind a check, nowhere else.

Read in torch 2.8 and 2.13: ``_SymmetricMemory.empty_strided_p2p``, ``_symmetric_memory.rendezvous``, a handle's
``get_buffer`` and ``barrier``, a group's ``_get_backend(device).options._timeout``, a tensor's two kinds of hooks, and
the two fused operators are the same in both.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from collections.abc import Callable
from typing import Any

from lagom.errors import LagomError

#: The oldest release whose signatures are known to fit.
OLDEST = (2, 8)
#: torch's own for groups of NCCL.
USUAL_TIMEOUT_MS = 600_000
_SYMMETRIC_NAMES = ("_SymmetricMemory", "rendezvous", "enable_symm_mem_for_group")
_FUSED_NAMES = ("fused_all_gather_matmul", "fused_matmul_reduce_scatter")


class TorchRefused(LagomError, ImportError):
    """torch is missing or too old for lagom.parallel; nothing else of lagom needs it."""


def check_torch() -> None:
    """Raise :class:`TorchRefused` where torch is not installed, too old, or built without torch.distributed."""
    wanted = "{}.{}".format(*OLDEST)
    if importlib.util.find_spec("torch") is None:
        raise TorchRefused(
            f"lagom.parallel needs torch {wanted} or later, which is not installed; pip install 'torch>={wanted}'."
        )
    import torch

    if release(torch.__version__) < OLDEST:
        raise TorchRefused(f"lagom.parallel needs torch {wanted} or later; this is {torch.__version__}, update it.")
    if not torch.distributed.is_available():
        raise TorchRefused("lagom.parallel needs torch.distributed, and this torch has none; install another build.")


def release(version: str) -> tuple[int, ...]:
    """(2, 13) of ``2.13.0+cpu``; (0, 0) of what is no version."""
    numbers = version.split("+")[0].split(".")[:2]
    return tuple(map(int, numbers)) if all(number.isdecimal() for number in numbers) else (0, 0)


@functools.cache
def group_resolver() -> Any:
    """The process group of a name, as torch's functional collectives find it."""
    from torch.distributed.distributed_c10d import _resolve_process_group

    return _resolve_process_group


def constant_for_compilers(function: Any) -> Any:
    """torch.compiler.assume_constant_result, without the two seconds that importing the compiler takes."""
    function._dynamo_marked_constant = True
    return function


def traces_from(file: str) -> bool:
    """Whether what a compiler traces now begins in a file; True where that cannot be told."""
    try:
        from torch._guards import TracingContext

        stack = TracingContext.extract_stack()
    except (ImportError, AttributeError):
        return True
    return not stack or stack[0].filename == file


def version_of(tensor: Any) -> int:
    """A number that changes when the tensor is written to; 0 for compilers, whose graph would depend on it. Not for
    tensors of inference mode, which have none."""
    import torch

    return 0 if torch.compiler.is_compiling() else tensor._version


def dispatch_modes_counter() -> Callable[[], int]:
    """A function: how many TorchDispatchModes see every operator now. Without torch's: always one."""
    import torch

    return getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)


@functools.cache
def collectives() -> tuple[Any, Any]:
    """AllGather and ReduceScatter of one tensor, (result, input, group=), by the methods that torch's own functions end
    in, whose checks and logs take as much of the host's time as the launch. Without these methods: the functions."""
    from torch.distributed import ProcessGroup, distributed_c10d

    kinds = [getattr(distributed_c10d, name, object) for name in ("AllgatherOptions", "ReduceScatterOptions")]
    options: list[Any] = [kind() for kind in kinds]
    has_methods = all(hasattr(ProcessGroup, name) for name in ("_allgather_base", "_reduce_scatter_base"))
    if not has_methods or not all(hasattr(one, "asyncOp") for one in options):
        return public_collectives()
    for one in options:
        one.asyncOp = False

    def all_gather(result: Any, tensor: Any, group: Any) -> None:
        work = group._allgather_base(result, tensor, options[0])
        if work is not None:
            work.wait()

    def reduce_scatter(result: Any, tensor: Any, group: Any) -> None:
        work = group._reduce_scatter_base(result, tensor, options[1])
        if work is not None:
            work.wait()

    return all_gather, reduce_scatter


def public_collectives() -> tuple[Any, Any]:
    """The same as users call them. torch 2.13 gave them other names."""
    import torch.distributed as dist

    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather, getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def has_hooks(tensor: Any) -> bool:
    """Whether something is called when a tensor's gradient is there."""
    return bool(tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None))


def timeout_ms(group: Any, device: Any) -> int:
    """After how long NCCL gives up a collective of this group."""
    try:
        limit: float = group._get_backend(device).options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        return USUAL_TIMEOUT_MS
    return max(1, int(limit * 1000))  # 0 would be without end


@functools.cache
def symmetric_memory() -> Any:
    """torch's module; raises ImportError where a name that is needed is not in it. It sets up no multicast then, unless
    the user's environment says otherwise: where a machine is not prepared for that, it fails, or worse."""
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    import torch.distributed._symmetric_memory as module

    if missing := [name for name in _SYMMETRIC_NAMES if not hasattr(module, name)]:
        raise ImportError(f"this torch has no _symmetric_memory.{missing[0]}")
    return module


def allocate_symmetric(size: int, device: Any) -> Any:
    """So many bytes in an allocation of their own, to be made known to the peers by ``rendezvous``. Not by ``empty``:
    in late releases that takes memory from a pool, where two groups can share one set of signals, and which keeps what
    is freed."""
    import torch

    return symmetric_memory()._SymmetricMemory.empty_strided_p2p((size,), (1,), torch.uint8, torch.device(device))


def symmetric_refusal() -> str:
    """Why symmetric memory cannot be used with this torch: one clause, empty = it can."""
    try:
        symmetric_memory()
    except ImportError as error:
        return f"torch has no symmetric memory ({error})"
    return ""


@functools.cache
def fused_operators(group: str) -> tuple[Any, Any]:
    """torch's fused AllGather-matmul and matmul-ReduceScatter, ready for a group; raises ImportError without them."""
    import torch

    symmetric = symmetric_memory()
    if missing := [name for name in _FUSED_NAMES if not hasattr(torch.ops.symm_mem, name)]:
        raise ImportError(f"this torch has no symm_mem.{missing[0]}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later releases need no call and say so
        symmetric.enable_symm_mem_for_group(group)
    first, second = (getattr(torch.ops.symm_mem, name) for name in _FUSED_NAMES)
    return first, second
