# SPDX-License-Identifier: Apache-2.0
"""Reads the words of a command by the table of launchers: which launchers and wrappers are in it, with which options,
and which words are the same at each start of its job. What they mean for the ranks is judged in ``launchers.py``."""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from lagom.experiment.fingerprint import DIAGNOSTIC
from lagom.launch.launcher_table import BY_NAME, COMMAND_OPTIONS, DIFFERING_VARIABLES, Launcher, Starts

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
VERSION = re.compile(r"^(?:(python|pypy)[\d.]+|(mpirun|mpiexec)[._-].+)$")
ALL_ARGUMENTS = re.compile(r"\$(?:[@*]|\{[@*]\})")
ARGUMENT = re.compile(r"\$(?:(\d)|\{(\d+)(?::?-([^}]*))?\})")
#: Behind one of these ``$1`` is another argument: of a function, or after ``shift``.
OTHER_ARGUMENTS = re.compile(r"\bshift\b|\bset\s+--|\bfunction\b|\(\s*\)")
REPLACED = re.compile(r"(?:\$(?:\w+|[@*]|\{[^}]*\}))+")  # a word of which nothing is known
COMMENT = re.compile(r"(?<!\S)#.*")
SHEBANG = re.compile(r"#!.*\b(?:ba|da|z|k)?sh\b")
MOST_BYTES = 64 << 10  # of a script that is read
MOST_SCRIPTS = 8  # read for one command: a script may start itself
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
    """Goes through a command from wrapper to wrapper, also into the text of ``bash -c`` and, if ``opens_scripts``, of
    the files of shells; these add to ``chains`` alone, never to the words. ``chains``: of each simple command in it the
    launchers, from the outermost to the program. ``fills_in``: puts the arguments of a text in their places.
    For the words that stay it must not: these are the text's own, and the arguments stay as words of the command."""

    def __init__(self, *, opens_scripts: bool = False, fills_in: bool = True) -> None:
        self.chains: list[list[CommandPart]] = []
        self.variables: dict[str, str] = {}
        self.scripts_left = MOST_SCRIPTS if opens_scripts else 0
        self.fills_in = fills_in

    @property
    def parts(self) -> list[CommandPart]:
        """Each once."""
        return list({id(part): part for chain in self.chains for part in chain}.values())

    def read(self, words: list[str], before: Sequence[CommandPart] = ()) -> list[str]:
        """Read a simple command; returns its words without those that differ at each start, and what can be written in
        several ways in one."""
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
            self._open_script(words[at:], chain, is_told=False)
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
                spelt = _in_one_spelling(launcher, name, value, words[at : at + width])
                if name in launcher.scripts:
                    following = words[at + width :]
                    return [*stay, word, self._read_script(value, chain, following[1:]), *following]
                if name in launcher.modules:
                    return [*stay, *spelt[:-1], *self.read([value, *words[at + width :]], chain)]
                stay += spelt
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
            if chain[-1].launcher.scripts and words:
                self._open_script(words, chain, is_told=True)
            if words and words[0] and not chain[-1].last(COMMAND_OPTIONS):  # ./train.py, a script and no program
                words = [str(PurePosixPath(words[0])), *words[1:]]
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
        if not _may_differ(found[1]):
            stay.append(word)
        return True

    def _read_script(self, text: str, chain: list[CommandPart], arguments: Sequence[str] = ()) -> str:
        commands = _simple_commands(text)
        if self.fills_in and OTHER_ARGUMENTS.search(text) is None:
            commands = (list(_with_arguments(words, arguments)) for words in commands)
        return " ; ".join(" ".join(self.read(words, chain)) for words in commands)

    def _open_script(self, words: list[str], chain: list[CommandPart], *, is_told: bool) -> None:
        """Read the file of the first word, if it is a shell's: ``is_told`` by the command, else by its first line."""
        if self.scripts_left and (is_told or "/" in words[0]):
            text = _text_of(Path(words[0]))
            if is_told or SHEBANG.match(text):
                self.scripts_left -= 1
                self._read_script(COMMENT.sub("", text), chain, words[1:])


def plain_name(word: str) -> str:
    """The name in the table of a program: without its folder and version, with ``$`` where a variable stands in it."""
    return VERSION.sub(r"\1\2", Path(re.sub(r"\$\{[^}]*\}", "$", word)).name)


def _may_differ(variable: str) -> bool:
    """Whether two starts of the same job may have other values of it."""
    return variable in DIFFERING_VARIABLES or variable in DIAGNOSTIC


def _in_one_spelling(launcher: Launcher, name: str, value: str, words: list[str]) -> list[str]:
    """The words of a launcher's option: ``--nproc-per-node 8`` also where it is ``--nproc_per_node=8``, ``-N 2`` where
    it is ``-N2``. Empty where the option differs at each start."""
    is_of_one = name in launcher.variables and name not in launcher.listing
    if name in launcher.differing or (is_of_one and _may_differ(value.partition("=")[0])):
        return []
    if len(words) == 1 and value and name in _with_value(launcher):
        return [name, value]
    if not words[0].startswith("--"):
        return words
    _, equals, value = words[0].partition("=")
    return [f"{name.removesuffix('=')}{equals}{value}", *words[1:]]


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
    if part.launcher.runs_script and (told := [one for one in part.launcher.scripts if one[1] in name]):  # bash -ce
        return told[0], following, 2
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


def is_replaced(part: CommandPart) -> bool:
    """Whether the name of this program, or the word where its script would begin, comes from a variable or argument
    that is not known, so that it may stand for a launcher or for options."""
    is_script = bool(part.launcher.names) and part.launcher.runs_script
    return "$" in part.name or (is_script and any(REPLACED.fullmatch(word) for word in part.rest[:1]))


def _with_arguments(words: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """The words of a shell's text with its arguments in their places."""

    def value(found: re.Match[str]) -> str:
        place = int(found[1] or found[2])
        return found[0] if place == 0 else next(iter(arguments[place - 1 : place]), found[3] or "")

    for word in words:
        if ALL_ARGUMENTS.fullmatch(word):
            yield from arguments
        elif (filled := ARGUMENT.sub(value, word)) or not word:
            yield filled


def _text_of(file: Path) -> str:
    """Empty where it is no small text file; whatever else is at that place is not opened."""
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            return ""
        text = file.read_bytes()[: MOST_BYTES + 1].decode()
    except (OSError, ValueError):
        return ""
    return "" if "\0" in text else text


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
