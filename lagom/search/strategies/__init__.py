"""Strategies by name. Each is imported only when asked for: a controller that runs one does not load the others."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lagom.errors import LagomError
from lagom.records import Problem
from lagom.search.base import MakeModel, Strategy

STRATEGIES: dict[str, tuple[str, str, dict[str, Any]]] = {
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


def make_strategy(
    name: str, problem: Problem, seed: int = 0, *, model: MakeModel | None = None, **options: Any
) -> Strategy:
    """The strategy of that name for ``problem``. ``options`` are those of its class; ``shared=True`` (one config for
    all sites) works for each. ``model`` (``lagom.cost.FittedModel``) is for the strategies that use one, here
    ``guided``. Raises UnknownStrategy."""
    if name not in STRATEGIES:
        raise UnknownStrategy(f"no strategy named {name!r}: choose one of {', '.join(STRATEGIES)}")
    module, class_name, defaults = STRATEGIES[name]
    cls = getattr(import_module(module), class_name)
    if cls.uses_model:
        options["model"] = model
    return cls(problem, seed, **{**defaults, **options})
