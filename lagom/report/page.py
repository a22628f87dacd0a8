# SPDX-License-Identifier: Apache-2.0
"""One HTML file out of a template: inline pictures and style, nothing fetched from anywhere."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from lagom.errors import LagomError
from lagom.files import write_named
from lagom.format import format_factor, format_number, format_percent, format_time
from lagom.version import __version__


class ReportError(LagomError):
    """A report that has no place to go to."""


def render(template: str, **values: object) -> str:
    """The page; values are escaped, pictures are given as :class:`markupsafe.Markup`."""
    pages = Environment(
        loader=PackageLoader("lagom.report"),
        autoescape=select_autoescape(("html", "j2")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {one.__name__: one for one in (format_time, format_percent, format_factor, format_number)}
    return pages.get_template(template).render(version=__version__, **values)


def picture(svg: str) -> Markup:
    """An SVG of ours, to be put into a page as it is."""
    return Markup(svg)


def make_folder(folder: Path) -> None:
    """Create ``folder``; one clear sentence if that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"the folder {folder} cannot be made: {error.strerror or error}; choose another.") from error


def write(path: Path, text: str) -> None:
    """Write a text file; what is no letter (a file's name may be any bytes) is spelled out. Raises
    :class:`UsageError`."""
    write_named(path, text.encode(errors="backslashreplace"))
