"""``lagom help``: the help of a command, a setting or a topic; the whole manual as a man page."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lagom.cli import complete
from lagom.errors import UsageError


def topics(incomplete: str) -> list[str]:
    """What help there is."""
    from lagom.cli import manual

    known = [name for names in manual.PANELS.values() for name in names]
    return [
        *complete.one_of([*known, *manual.topics()])(incomplete),
        *(complete.settings(incomplete) if incomplete else []),
    ]


def show_help(
    context: typer.Context,
    topic: Annotated[
        str, typer.Argument(help="A command, a LAGOM_ variable, or rules.", show_default=False, autocompletion=topics)
    ] = "",
    man: Annotated[bool, typer.Option("--man", help="Print the whole manual as lagom(1), for man.")] = False,
) -> None:
    """Show the help of a command, of an environment variable, or of the rules of --set."""
    root = context.find_root()
    if man:
        from lagom.cli.roff import manual_page

        typer.echo(manual_page(root.command), nl=False)
    elif not topic:
        typer.echo(root.get_help())
    else:
        _show(root, topic)


def _show(root: Any, topic: str) -> None:
    from lagom.cli import manual
    from lagom.settings import BY_NAME

    commands = getattr(root.command, "commands", {})
    if topic in commands:
        commands[topic].main(
            ["--help"],
            prog_name=f"lagom {topic}",
            standalone_mode=False,
            help_option_names=root.help_option_names,
        )
    elif topic.upper() in BY_NAME:
        typer.echo(setting_text(topic.upper()))
    elif (page := manual.page_of(topic)) is not None:
        manual.show(page)
    else:
        known = ", ".join([*commands, *manual.topics(), "or a LAGOM_ variable"])
        raise UsageError(f"there is no help on '{topic}'; ask for one of: {known}.")


def setting_text(name: str) -> str:
    """A variable: what it takes, what it means, who reads it."""
    import textwrap

    from lagom.settings import BY_NAME

    setting = BY_NAME[name]
    values = ", ".join(setting.choices) or setting.kind
    facts = f"{name}  {values}; default: {setting.default or 'unset'}; read by: {', '.join(setting.readers)}"
    return f"{facts}\n\n{textwrap.fill(setting.text, 100)}"
