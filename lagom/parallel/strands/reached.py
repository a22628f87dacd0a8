# SPDX-License-Identifier: Apache-2.0
"""The modules and parameters that pieces use, as far as Python shows them: a piece is any function."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

Held = nn.Module | nn.Parameter
#: A container with more items is data.
MOST_ITEMS = 4096


def held_by(piece: Any) -> Iterator[Held]:
    """The piece itself; what it is a method of; what functools.partial binds; attributes of an object that is called;
    of a function its closure, its defaults, and what its names mean in its file."""
    left, seen = [piece], set()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Held):
            yield one
        else:
            left += _parts_of(one)


def parameters_of(pieces: Iterable[Any]) -> list[nn.Parameter]:
    """Each once, in an order that is the same on all ranks."""
    found = (one for piece in pieces for one in held_by(piece))
    every = (p for one in found for p in (one.parameters() if isinstance(one, nn.Module) else [one]))
    return list({id(parameter): parameter for parameter in every}.values())


def kinds_of(piece: Any) -> set[str]:
    """The names of the classes of all modules that a piece holds, and of their bases."""
    modules = (part for one in held_by(piece) if isinstance(one, nn.Module) for part in one.modules())
    return {kind.__name__ for module in modules for kind in type(module).__mro__}


def _parts_of(one: Any) -> Iterable[Any]:
    if isinstance(one, functools.partial):
        return [one.func, *one.args, *one.keywords.values()]
    if isinstance(one, types.MethodType):
        owner = one.__self__
        return [one.__func__, *([owner] if isinstance(owner, nn.Module) else getattr(owner, "__dict__", {}).values())]
    if isinstance(one, types.FunctionType):
        return _parts_of_function(one)
    if isinstance(one, (list, tuple, Mapping)):
        items = one.values() if isinstance(one, Mapping) else one
        return list(items) if len(one) <= MOST_ITEMS else []
    return list(getattr(one, "__dict__", {}).values()) if callable(one) and not isinstance(one, type) else []


def _parts_of_function(function: types.FunctionType) -> list[Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    of_file = [one for one in named if isinstance(one, (nn.Module, nn.Parameter, list, tuple, dict))]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *of_file]


def _is_empty(cell: types.CellType) -> bool:
    """Whether its variable has no value yet."""
    try:
        cell.cell_contents  # noqa: B018 - it raises
    except ValueError:
        return True
    return False
