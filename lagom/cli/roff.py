"""lagom(1): every command's help and page as one manual page, in the macros of man(7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lagom import __version__
from lagom.cli.manual import Page, page_of, topics
from lagom.settings import SETTINGS


def manual_page(root: Any) -> str:
    """The whole manual; ``root`` is the command line as click has it."""
    return "\n".join(_lines(root)) + "\n"


def _lines(root: Any) -> Iterator[str]:
    yield f'.TH LAGOM 1 "" "lagom {__version__}" "User Commands"'
    yield ".SH NAME"
    yield r"lagom \- tune NCCL while a distributed training job runs"
    yield ".SH SYNOPSIS"
    yield r".B lagom"
    yield r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]"
    yield ".SH DESCRIPTION"
    yield text(root.help or "")
    yield ".SH COMMANDS"
    for name, command in root.commands.items():
        yield from _command(name, command)
    for name in topics():
        page = page_of(name)
        if page is not None:
            yield from _sections(page, {name.upper(): name.upper()})
    yield ".SH ENVIRONMENT"
    for setting in SETTINGS:
        if not setting.internal:
            yield from _item(f"{setting.name} ({', '.join(setting.choices) or setting.kind})", setting.text)


def _command(name: str, command: Any) -> Iterator[str]:
    yield f".SS lagom {text(name)}"
    for number, paragraph in enumerate((command.help or "").split("\n\n")):
        if number:
            yield ".PP"
        yield text(" ".join(paragraph.split()))
    for parameter in command.params:
        label = ", ".join([*parameter.opts, *parameter.secondary_opts])
        if parameter.param_type_name == "argument":
            label = parameter.metavar or parameter.name.upper()
        elif not getattr(parameter, "is_flag", False):
            label += f" {parameter.name.upper()}"
        yield from _item(label, getattr(parameter, "help", "") or "")
    page = page_of(name)
    if page is not None:
        yield from _sections(page, {})


def _sections(page: Page, own: dict[str, str]) -> Iterator[str]:
    """``own``: headings that stand as sections of the manual, not of a command."""
    for name, lines in page.sections.items():
        yield f".SH {own[name]}" if name in own else f".PP\n.B {text(name.capitalize())}"
        yield ".RS\n.nf"
        yield from map(_line, lines)
        yield ".fi\n.RE"


def _line(line: str) -> str:
    return rf"\fB{text(line)}\fR" if line.startswith("$ ") else text(line)


def _item(label: str, meaning: str) -> Iterable[str]:
    return (".TP", rf"\fB{text(label)}\fR", text(" ".join(meaning.split())))


def text(words: str) -> str:
    """Words for roff: backslashes, hyphens, and dots or quotes that would begin a request."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in escaped.split("\n"))
