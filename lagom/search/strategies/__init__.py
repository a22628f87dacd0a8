# SPDX-License-Identifier: Apache-2.0
"""Strategies by name. Each is imported only when asked for: a controller that runs one does not load the others."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from lagom.errors import LagomError
from lagom.records import Problem
from lagom.search.base import MakeModel, NonConforming, Strategy

STRATEGIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "auto": ("lagom.search.strategies.auto", "Auto", {}),
    "lagom": ("lagom.search.strategies.lagom", "Lagom", {}),
    "guided": ("lagom.search.strategies.guided", "Guided", {}),
    "as_printed": ("lagom.search.strategies.as_printed", "AsPrinted", {}),
    "autoccl": ("lagom.search.strategies.autoccl", "AutoCCL", {}),
    "static": ("lagom.search.strategies.static", "Static", {}),
    "liger": ("lagom.search.strategies.static", "Static", {"caps": (3,)}),
    "dhelix": ("lagom.search.strategies.static", "Static", {"caps": (2,), "threads": 256}),
    "random": ("lagom.search.strategies.random_search", "RandomSearch", {}),
    "exhaustive": ("lagom.search.strategies.exhaustive", "Exhaustive", {}),
    "given": ("lagom.search.strategies.given", "Given", {}),
}
"""Name: (module, class, options it stands for)."""


class UnknownStrategy(LagomError):
    """A strategy was asked for by a name that none has; the message lists those there are."""


def find_strategy(name: str) -> tuple[type[Strategy], dict[str, Any]]:
    """The class of a strategy, and the options that its name stands for.

    ``name``: one of :data:`STRATEGIES`, or ``package.module:Class`` for one of the user's own, which is installed or on
    PYTHONPATH: the folder the job runs in is not searched. Raises :class:`UnknownStrategy`, and
    :class:`lagom.search.base.NonConforming` for a class that is no strategy.
    """
    if ":" in name:
        return _users_own(name), {}
    if name not in STRATEGIES:
        known = f"choose one of: {', '.join(STRATEGIES)}, or name one of your own as package.module:Class"
        raise UnknownStrategy(f"there is no strategy {name!r}; {known}.")
    module, class_name, options = STRATEGIES[name]
    found: type[Strategy] = getattr(import_module(module), class_name)
    return found, options


def _users_own(name: str) -> type[Strategy]:
    module, _, class_name = name.partition(":")
    try:
        with _without_the_working_folder():
            found = getattr(import_module(module), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        where = "it must be installed, or its folder be on PYTHONPATH"
        raise UnknownStrategy(f"the strategy {name} cannot be imported ({error}); {where}.") from error
    if not isinstance(found, type) or not issubclass(found, Strategy):
        raise NonConforming(f"{name} is no subclass of lagom.Strategy.")
    if missing := sorted(found.__abstractmethods__):
        raise NonConforming(f"{name} does not implement {', '.join(missing)}, which lagom.Strategy asks for.")
    if not hasattr(found, "name"):
        raise NonConforming(f"{name} has no `name`, which the log calls a strategy by.")
    try:
        inspect.signature(found).bind(None, 0)
    except TypeError as error:
        raise NonConforming(f"{name} cannot be made from a problem and a seed: {error}.") from error
    try:
        inspect.signature(found.moves).bind(None, None)
    except TypeError as error:
        raise NonConforming(f"moves() of {name} cannot be called with the measurements: {error}.") from error
    return found


@contextlib.contextmanager
def _without_the_working_folder() -> Iterator[None]:
    """Another user may have put a module into the folder that the job runs in. Where PYTHONPATH names it, it is
    searched."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    here = os.getcwd()
    before = list(sys.path)
    sys.path[:] = [path for path in before if path not in ("", here) or (path == here and path in named)]
    try:
        yield
    finally:
        sys.path[:] = before


def make_strategy(
    name: str, problem: Problem, seed: int = 0, *, model: MakeModel | None = None, **options: Any
) -> Strategy:
    """The strategy of that name (:func:`find_strategy`) for ``problem``. ``options`` are those of its class;
    ``shared=True`` (one config for all sites) works for each. ``model`` (``lagom.cost.FittedModel``) is for the
    strategies that use one, here ``auto`` and ``guided``. Raises :class:`UnknownStrategy`."""
    cls, defaults = find_strategy(name)
    if cls.uses_model:
        options["model"] = model
    return cls(problem, seed, **{**defaults, **options})
