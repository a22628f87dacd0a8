# SPDX-License-Identifier: Apache-2.0
"""Pages of results: the text is in ``benchmarks/templates``, the numbers are computed in Python."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    autoescape=False,  # Markdown
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters["three"] = lambda value: f"{value:.3f}"


def render(template: str, /, **values: object) -> str:
    """The text of ``templates/<template>.md.j2``; a name that the template uses and nobody gave raises."""
    return _ENVIRONMENT.get_template(f"{template}.md.j2").render(**values)
