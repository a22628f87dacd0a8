# SPDX-License-Identifier: Apache-2.0
"""Reads the words of a command by the table of launchers: which launchers and wrappers are in it, with which options,
and which words are the same at each start of its job. What they mean for the ranks is judged in ``launchers.py``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lagom.launch.launcher_table import BY_NAME, DIFFERING_VARIABLES, Launcher, Starts

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
VERSION = re.compile(r"^(?:(python|pypy)[\d.]+|(mpirun|mpiexec)[._-].+)$")
SUBSTITUTION = re.compile(r"\$\(\([^()]*\)\)|\$\([^()]*\)|`[^`]*`")  # innermost first


@dataclass(slots=True)
class CommandPart:
    """One launcher or wrapper with its own options. ``rest``: what follows these. ``is_doubtful``: an option that is
    not in the table was followed by a word that may be its value, so ``rest`` may begin too early."""

    launcher: Launcher
    name: str
    options: list[tuple[str, str]] = field(default_factory=list)
    rest: Sequence[str] = ()
    is_doubtful: bool = False

    def last(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The last one of these options, which wins: with its value."""
        return next((option for option in reversed(self.options) if option[0] in names), None)


class CommandReader:
    """Goes through a command from wrapper to wrapper, also into the text of ``bash -c``. ``chains``: of each simple
    command in it the launchers, from the outermost to the program."""

    def __init__(self) -> None:
        self.chains: list[list[CommandPart]] = []
        self.variables: dict[str, str] = {}

    @property
    def parts(self) -> list[CommandPart]:
        """Each once."""
        return list({id(part): part for chain in self.chains for part in chain}.values())

    def read(self, words: list[str], before: Sequence[CommandPart] = ()) -> list[str]:
        """Read a simple command; returns its words without those that differ at each start."""
        at = 0
        stay: list[str] = []
        while at < len(words) and self._assigns(words[at], stay):
            at += 1
        if at == len(words):
            return stay
        name = plain_name(words[at])
        part = CommandPart(BY_NAME.get(name, Launcher(names=(), runs_script=True)), name)
        chain = [*before, part]
        stay.append(words[at])
        if name == "eval":
            return [*stay, self._read_script(" ".join(words[at + 1 :]), chain)]
        if not part.launcher.names:
            return stay + self._read_script_words(words[at + 1 :], chain)
        return self._read_options(words[at + 1 :], chain, stay)

    def _read_options(self, words: list[str], chain: list[CommandPart], stay: list[str]) -> list[str]:
        part, launcher = chain[-1], chain[-1].launcher
        at = operands = 0
        while at < len(words):
            word = words[at]
            if word == "--":
                stay.append(word)
                at += 1
                break
            if word.startswith("-"):
                name, value, width = _read_option(part, words, at)
                part.options.append((name, value))
                if name in launcher.scripts:
                    return [*stay, word, self._read_script(value, chain), *words[at + width :]]
                if name in launcher.modules:
                    return [*stay, word, *self.read([value, *words[at + width :]], chain)]
                stay += [] if name in launcher.differing else words[at : at + width]
                at += width
                continue
            if not (launcher.assigns and self._assigns(word, stay)):
                operands += word not in launcher.verbs
                if operands > launcher.operands:
                    break
                stay.append(word)
            at += 1
        return stay + self._read_command(words[at:], chain)

    def _read_command(self, words: list[str], chain: list[CommandPart]) -> list[str]:
        """What follows a launcher's own options."""
        if chain[-1].launcher.runs_script or not words:
            return self._read_script_words(words, chain)
        chain[-1].rest = words
        return self.read(words, chain)

    def _read_script_words(self, words: list[str], chain: list[CommandPart]) -> list[str]:
        """The end of a chain; unless it is a script that no launcher has started and that is given a launcher, as
        ``./wrapper torchrun train.py``."""
        chain[-1].rest = words
        if all(part.launcher.starts is Starts.HERE for part in chain):
            for at, word in enumerate(words[:-1]):
                launcher = BY_NAME.get(plain_name(word))
                is_value = at > 0 and words[at - 1].startswith("-")
                if launcher is not None and launcher.starts is not Starts.HERE and not is_value:
                    return words[:at] + self.read(words[at:], chain)
        self.chains.append(chain)
        return words

    def _assigns(self, word: str, stay: list[str]) -> bool:
        if (found := ASSIGNMENT.fullmatch(word)) is None:
            return False
        self.variables[found[1]] = found[2]
        if found[1] not in DIFFERING_VARIABLES:
            stay.append(word)
        return True

    def _read_script(self, text: str, chain: list[CommandPart]) -> str:
        return " ; ".join(" ".join(self.read(words, chain)) for words in _simple_commands(text))


def plain_name(word: str) -> str:
    """The name in the table of a program: without its folder and version."""
    return VERSION.sub(r"\1\2", Path(word).name)


def _read_option(part: CommandPart, words: list[str], at: int) -> tuple[str, str, int]:
    """(name as in the table, value, number of words) of the option at that place. One row of the table is for several
    wrappers, so what has a value there may be a flag of this one: it is, before an option or a launcher's name."""
    name, value, width = _read_as_in_table(part, words, at)
    may_be_flag = part.launcher.is_shared and width == 2 and name in part.launcher.values and name[:2] != "--"
    is_file = name == "-o" and value[:1] != "-"  # for all of them
    is_flag = may_be_flag and not is_file and (value[:1] == "-" or plain_name(value) in BY_NAME)
    return (name, "", 1) if is_flag else (name, value, width)


def _read_as_in_table(part: CommandPart, words: list[str], at: int) -> tuple[str, str, int]:
    launcher, word = part.launcher, words[at]
    name, equals, value = word.partition("=")
    name = _full_name(launcher, name.replace("_", "-") if name.startswith("--") else name)
    following = words[at + 1] if at + 1 < len(words) else ""
    if equals:  # sudo -E passes everything, sudo --preserve-env=A does not
        return f"{name}=" if name in launcher.passing else name, value, 1
    if name in launcher.pairs:
        return name, following, 3
    if name in _with_value(launcher):
        return name, following, 2
    if name.startswith("--") or launcher.long_dash or name in launcher.flags:
        is_known = name in (*launcher.flags, *launcher.passing, *launcher.clearing)
        part.is_doubtful |= not is_known and not following.startswith("-")
        return name, "", 1
    return _read_letters(part, name, following)


def _read_letters(part: CommandPart, name: str, following: str) -> tuple[str, str, int]:
    """Options of one letter: with the value attached, as in ``srun -N2``, or several in one word, as in ``bash -lc``,
    ``sudo -nE`` and ``env -i``."""
    takes_value = _with_value(part.launcher)
    if name[:2] in takes_value:
        return name[:2], name[2:], 1
    letters = [f"-{letter}" for letter in name[1:]]
    part.options += [(letter, "") for letter in letters]
    if letters and letters[-1] in takes_value:
        return letters[-1], following, 2
    return name, "", 1


def _with_value(launcher: Launcher) -> tuple[str, ...]:
    """All options that take one."""
    return (
        *launcher.values, *launcher.nodes, *launcher.ranks, *launcher.hosts, *launcher.host_files, *launcher.variables,
        *launcher.scripts, *launcher.modules, *launcher.differing, *filter(None, (launcher.nodes_file,)),
    )  # fmt: skip


def _full_name(launcher: Launcher, name: str) -> str:
    """Options may be shortened as long as it is clear which is meant: ``--nnode``."""
    if not name.startswith("--") or len(name) < len("--nn"):
        return name
    known = {*_with_value(launcher), *launcher.flags, *launcher.passing, *launcher.clearing, *launcher.each_node}
    longer = [one for one in known if one.startswith(name)]
    return longer[0] if name not in known and len(longer) == 1 else name


def _simple_commands(text: str) -> Iterator[list[str]]:
    """Of a shell's text: without redirections; what a command in it would print is ``$_``, which nobody knows."""
    text = re.sub(r"(?<=\s)\d+(?=[<>])", "", text.replace("\\\n", " ").replace("\n", " ; "))
    found = 1
    while found:
        text, found = SUBSTITUTION.subn("$_", text)
    split = shlex.shlex(text, posix=True, punctuation_chars=True)
    split.whitespace_split, split.commenters = True, ""
    try:
        words = list(split)
    except ValueError:
        words = text.split()
    simple: list[str] = []
    skips = False
    for word in [*words, ";"]:
        if skips or (set(word) & set("<>") and set(word) <= set("<>&|")):
            skips = not skips
        elif word and set(word) <= set(";|&()"):
            if simple:
                yield simple
            simple = []
        else:
            simple.append(word)
