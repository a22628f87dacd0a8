# SPDX-License-Identifier: Apache-2.0
"""The words of ``--arms``: what each means, and how it can be compared. `lagom bench --help` explains each."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from lagom.controller.arms import ArmWish
from lagom.environment import KNOWN
from lagom.errors import LagomError
from lagom.experiment.arm import Kind, TrialArm, arm_with
from lagom.search import STRATEGIES

#: DHelix's and Liger's settings, as their scripts export them.
DHELIX = {"NCCL_MAX_NCHANNELS": "2", "NCCL_NTHREADS": "256"}
LIGER = {"NCCL_MAX_NCHANNELS": "3", "CUDA_DEVICE_MAX_CONNECTIONS": "2"}
NO_SEARCH = ("static", "liger", "dhelix", "given")  # strategies that are arms by another name
TUNERS = tuple(name for name in STRATEGIES if name not in NO_SEARCH)
OFF = "off"
BARE = ("stock", "static", "grid", "dhelix", "liger", OFF)
VALUED = ("set", "static", "replay", "env", "headroom")
HEADROOM_STRATEGY = "auto"  # what tunes a job with head-room; own:auto is the same without it
_NEXT_VARIABLE = re.compile(r",(?=[A-Za-z_]\w*=)")
LISTS = ("set", "replay", "env")  # whose values may hold commas


class BadArm(LagomError):
    """A word of ``--arms`` that cannot be understood."""


def parse_arms(words: list[str]) -> tuple[TrialArm, ...]:
    """The arms of some ``--arms`` values; raises :class:`BadArm`. ``stock`` is always among them and comes first."""
    asked = [_arm(word) for text in words for word in split_words(text)]
    arms = {arm.name: arm for arm in (_arm("stock"), *asked)}
    first = next((arm.name for arm in arms.values() if arm.kind is Kind.PROCESS), "")
    if not first or "own:stock" in arms:
        return tuple(arms.values())
    beside = {"own:stock": _arm("own:stock")}
    return tuple(one for name, arm in arms.items() for one in ((*beside.values(), arm) if name == first else (arm,)))


def split_words(text: str) -> list[str]:
    """The words between commas. What cannot begin an arm belongs to the one before where that can hold commas: rules
    and variables do."""
    words: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if words and _holds_commas(words[-1]) and not _begins_an_arm(part):
            words[-1] += f",{part}"
        else:
            words.append(part)
    if not words:
        raise BadArm("--arms is empty; name what to compare, like stock,static, or leave it out.")
    return words


def _begins_an_arm(part: str) -> bool:
    word, equals, _ = part.removeprefix("own:").partition("=")
    known = VALUED if equals else (*BARE, *TUNERS)
    return part.startswith("own:") or word in known


def _holds_commas(word: str) -> bool:
    head, equals, _ = word.removeprefix("own:").partition("=")
    return bool(equals) and head in LISTS


def _arm(word: str) -> TrialArm:
    if word.startswith("own:"):
        return _own(word.removeprefix("own:"))
    head, equals, value = word.partition("=")
    if equals and not value:
        raise BadArm(f"the arm '{word}' has no value; write {head}=SOMETHING.")
    if head in TUNERS and not equals:
        return TrialArm(word, Kind.TUNING, strategy=head)
    if word == OFF or head in ("env", "headroom"):
        return _process(word, head, value)
    return TrialArm(word, Kind.IN_JOB, wish=_wish(word, head, value))


def _wish(word: str, head: str, value: str) -> ArmWish:
    """What the controller is asked to compare."""
    if word == "stock":
        return ArmWish(name=word)
    if head == "set" and value:
        return ArmWish(name=word, rules=_checked_rules(value))
    if head == "static":
        return ArmWish(name=word, cap=_count(word, value)) if value else ArmWish(name=word, sweep=True)
    if word == "grid":
        return ArmWish(name=word, grid=True)
    if word == "dhelix":
        return ArmWish(name=word, cap=2, threads=256)
    if word == "liger":
        return ArmWish(name=word, cap=3)
    if head == "replay" and value:
        return ArmWish(name=word, config=_checked_config(value))
    known = ", ".join([*BARE, *(f"{name}=..." for name in VALUED), *TUNERS, "own:..."])
    raise BadArm(f"there is no arm '{word}'; choose among: {known}.")


def _process(word: str, head: str, value: str) -> TrialArm:
    if word == OFF:
        return TrialArm(word, Kind.PROCESS, plugin=False)
    if head == "headroom":
        return TrialArm(word, Kind.PROCESS, strategy=HEADROOM_STRATEGY, options=("--headroom", _headroom(word, value)))
    return arm_with(word, parse_variables(word))


def _own(word: str) -> TrialArm:
    """The same in a process of its own. The caps of others are set as they set them: by variables."""
    arm, name = _arm(word), f"own:{word}"
    literal = {"dhelix": DHELIX, "liger": LIGER}.get(word)
    if word == "stock" or literal is not None:
        return arm_with(name, literal or {})
    if arm.kind is Kind.PROCESS:
        return arm
    if arm.kind is Kind.TUNING:
        return replace(arm, name=name, kind=Kind.PROCESS)
    assert arm.wish is not None
    return TrialArm(name, Kind.PROCESS, options=_pinned(word, arm.wish))


def _pinned(word: str, wish: ArmWish) -> tuple[str, ...]:
    if wish.rules:
        return "--set", wish.rules
    if wish.cap is not None:
        return "--set", f"any:any:nc={wish.cap}"
    if wish.config is not None:
        return "--mode", "replay", "--config", str(wish.config)
    raise BadArm(f"'own:{word}' would be many processes; name one setting, like own:static=4.")


def _count(word: str, value: str) -> int:
    if not value.isdigit() or not 1 <= int(value) <= 64:
        raise BadArm(f"'{word}' needs a number of channels from 1 to 64.")
    return int(value)


def _headroom(word: str, value: str) -> str:
    """A number of channels, or two: built and stock's."""
    from lagom.headroom import parse

    if ":" in value:
        parse(value)
        return value
    return str(_count(word, value))


def parse_variables(word: str) -> dict[str, str]:
    """What a word ``env=NAME=VALUE,...`` sets; raises :class:`BadArm`. A value may hold commas itself: what comes after
    one and does not begin with ``NAME=`` belongs to it."""
    pairs = [piece.partition("=") for piece in _NEXT_VARIABLE.split(word.removeprefix("env="))]
    named = all(name and equals and KNOWN.keys().isdisjoint(text.split(",")) for name, equals, text in pairs)
    if not named:
        raise BadArm(f"'{word}' needs variables like env=NCCL_BUFFSIZE=8388608,NCCL_NTHREADS=256.")
    return {name: text for name, _, text in pairs}


def _checked_rules(value: str) -> str:
    from lagom.settings import split_rules
    from lagom.wire.plan import parse_rule

    for rule in split_rules(value):
        parse_rule(rule)
    return value


def _checked_config(value: str) -> Path:
    from lagom.config_file import refuse_simulated

    path = Path(value).absolute()
    refuse_simulated(path)
    return path
