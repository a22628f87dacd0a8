"""Which strategy a tuning run uses: the one named, or the configs given by hand for comparison."""

from __future__ import annotations

from lagom.controller.options import Options
from lagom.controller.settable import settable_rules
from lagom.records import STOCK, Assignment, CommConfig, Site
from lagom.search import STRATEGIES, Problem, Strategy, UnknownStrategy, make_strategy
from lagom.settings import split_rules
from lagom.wire.plan import Rule, parse_rule


def refuse_what_cannot_be_read(options: Options) -> None:
    """Raises :class:`LagomError` for a rule or a strategy that does not exist, before anything is attached."""
    for rule in (*options.rules, *(rule for text in options.compare for rule in split_rules(text))):
        parse_rule(rule)
    if options.strategy not in STRATEGIES:
        raise UnknownStrategy(f"no strategy named {options.strategy!r}: choose one of {', '.join(STRATEGIES)}")


def chosen_strategy(options: Options, problem: Problem) -> Strategy:
    """The strategy of ``options``; ``--compare`` replaces the search by the configs it names."""
    if not options.compare:
        return make_strategy(options.strategy, problem, options.seed)
    arms = [tuple(map(parse_rule, split_rules(text))) for text in options.compare]
    assignments = [by_rules(settable_rules(rules, problem.knobs), problem.sites) for rules in arms]
    return make_strategy("given", problem, options.seed, assignments=assignments)


def given_by_hand(options: Options) -> list[CommConfig]:
    """Every config that ``--compare`` names."""
    return [parse_rule(rule).config for text in options.compare for rule in split_rules(text)]


def by_rules(rules: tuple[Rule, ...], sites: tuple[Site, ...]) -> Assignment:
    """Each site with the config of the first rule that fits it, else stock."""
    return Assignment(tuple(_config_of(site, rules) for site in sites))


def _config_of(site: Site, rules: tuple[Rule, ...]) -> CommConfig:
    fitting = (rule.config for rule in rules if rule.matches(site.function, site.bytes))
    return next(fitting, STOCK)
