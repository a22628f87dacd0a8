# SPDX-License-Identifier: Apache-2.0
"""What the atlas suggests for a communicator's iteration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lagom.atlas.entry import AtlasEntry, Found, Key, size_class
from lagom.format import format_count
from lagom.records import STOCK, Assignment, CommConfig, Problem, Site
from lagom.search import Suggestion
from lagom.search.space import Space

MOST_DOUBLINGS = 2  # between the size of a site and that of what is known
MOST_SUGGESTIONS = 2  # each may cost a window


def suggest(
    entries: Iterable[AtlasEntry], here: Key, problem: Problem, most: int = MOST_SUGGESTIONS
) -> list[Suggestion]:
    """At most ``most`` assignments that are legal for ``problem``, each once, those with the largest speed-up first."""
    fitting = sorted((entry for entry in entries if entry.key.fits(here)), key=lambda entry: -entry.speedup)
    found: dict[Assignment, Suggestion] = {}
    for suggestion in _suggestions(fitting, problem):
        found.setdefault(suggestion.assignment, suggestion)
    return list(found.values())[:most]


def _suggestions(entries: Iterable[AtlasEntry], problem: Problem) -> Iterator[Suggestion]:
    space = Space(problem)
    for entry in entries:
        try:
            configs = tuple(_config_for(site, entry.found) for site in problem.sites)
        except ValueError:  # an algorithm or protocol that this lagom does not know
            continue
        assignment = space.normal(Assignment(configs))
        if not assignment.is_stock and space.why_illegal(assignment) is None:
            gain, ranks = f"{entry.speedup:.3f}x", format_count(entry.key.ranks, "rank")
            yield Suggestion(assignment, f"the atlas ({gain} with {ranks}: {entry.origin})")


def _config_for(site: Site, found: Iterable[Found]) -> CommConfig:
    """What is known of the nearest size; stock where nothing is near enough."""
    size = size_class(site.bytes)
    near = [one for one in found if _is_alike(one, site) and abs(one.size_class - size) <= MOST_DOUBLINGS]
    nearest = min(near, key=lambda one: (abs(one.size_class - size), one.context != site.context), default=None)
    return STOCK if nearest is None else nearest.config.config()


def _is_alike(found: Found, site: Site) -> bool:
    """The same function, and not hidden where the other is exposed."""
    contexts_differ = found.context and site.context and found.context != site.context
    return found.function == site.function.word and not contexts_differ
