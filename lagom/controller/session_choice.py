# SPDX-License-Identifier: Apache-2.0
"""Which strategy a tuning run uses: the one named, or the configs given by hand for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lagom.controller.arms import read_arms, resolve
from lagom.controller.measure import Tier
from lagom.controller.options import Options
from lagom.controller.pinned_rules import by_first_rule, left_out, settable_rules
from lagom.controller.tuner_state import Learned
from lagom.records import Assignment, CommConfig, Site
from lagom.search import BLOCKS, LIVE, Strategy, Suggest, TuningSession, find_strategy, make_strategy
from lagom.search.comparison import ComparisonSession
from lagom.settings import split_rules
from lagom.wire.plan import Rule, parse_rule


def refuse_what_cannot_be_read(options: Options) -> None:
    """Raises :class:`LagomError` for a rule or a strategy that does not exist, before anything is attached."""
    for rule in (*options.rules, *(rule for text in options.compare for rule in split_rules(text))):
        parse_rule(rule)
    if options.arms is not None:
        read_arms(options.arms)
    find_strategy(options.strategy)


def chosen_session(
    options: Options,
    learned: Learned,
    say: Callable[[str], None],
    candidates: Sequence[Assignment] = (),
    suggest: Suggest | None = None,
) -> TuningSession | ComparisonSession:
    """What drives the windows of one communicator: a search, or with ``--arms`` a comparison of named settings.

    ``say`` hears a sentence for everything that was asked for by hand and cannot be had here.
    ``candidates``: what earlier searches of this job found; they are tried first, then those of ``suggest``.
    """
    problem = learned.problem
    if options.arms is None:
        for sentence in left_out(given_by_hand(options), problem.knobs):
            say(sentence)
        policy = BLOCKS if learned.tier is Tier.HOST else LIVE
        strategy = chosen_strategy(options, learned)
        session = TuningSession(strategy, problem, policy, options.seed, candidates=candidates, suggest=suggest)
        for sentence in session.left_out:
            say(sentence)
        return session
    wanted = read_arms(options.arms)
    arms, remarks = resolve(wanted.arms, problem, learned.tuned.positions)
    for sentence in remarks:
        say(sentence)
    return ComparisonSession(arms, len(problem.sites), cycles=wanted.cycles, seed=options.seed)


def chosen_strategy(options: Options, learned: Learned) -> Strategy:
    """The strategy of ``options``; ``--compare`` replaces the search by the configs it names."""
    problem = learned.problem
    if not options.compare:
        model = None
        if wants_trace(options):
            from lagom.cost import FittedModel  # 10 MB that only this strategy needs

            model = partial(FittedModel, program=learned.traced)
        return make_strategy(options.strategy, problem, options.seed, model=model)
    arms = [tuple(map(parse_rule, split_rules(text))) for text in options.compare]
    assignments = [by_rules(settable_rules(rules, problem.knobs), problem.sites) for rules in arms]
    return make_strategy("given", problem, options.seed, assignments=assignments)


def wants_trace(options: Options) -> bool:
    """Whether the strategy can use the kernels of an iteration."""
    return find_strategy(options.strategy)[0].uses_model and not options.only_compares


def given_by_hand(options: Options) -> list[CommConfig]:
    """Every config that ``--compare`` names."""
    return [parse_rule(rule).config for text in options.compare for rule in split_rules(text)]


def by_rules(rules: tuple[Rule, ...], sites: tuple[Site, ...]) -> Assignment:
    """Each site with the config of the first rule that fits it, else stock."""
    return Assignment(tuple(by_first_rule(rules, site) for site in sites))
