"""How the demo shows that it is alive: a status line on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from lagom.demo.story import Story

PLAIN_SECONDS = 5.0


class Display(Protocol):
    """Told again and again what is known."""

    def __enter__(self) -> Display: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...
    def update(self, story: Story, seconds: float, iterations: int) -> None:
        """``iterations``: what the slowest rank has enqueued."""


def status_of(story: Story, iterations: int) -> str:
    """One line: where the search is."""
    if story.program is None:
        return f"{story.ranks} ranks joined, {iterations} iterations: learning the program"
    purpose = story.moves[-1].purpose if story.moves else "baseline"
    best = "" if story.best_ratio is None else f", best trial {(1 - story.best_ratio) * 100:+.1f} %"
    lost = f", regret {story.lost_iterations:.1f}" if story.moves else ""
    tried = f"{story.configs_tried} configs, {iterations} iterations of the job"
    return f"{purpose} {len(story.moves)}: {tried}{best}{lost}"


class TerminalDisplay:
    """A live bar over the time allowed."""

    def __init__(self, console: Console, seconds: float) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("starting the virtual ranks and the controller", total=seconds)

    def __enter__(self) -> TerminalDisplay:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def update(self, story: Story, seconds: float, iterations: int) -> None:
        self._progress.update(self._task, completed=seconds, description=status_of(story, iterations))


class PlainDisplay:
    """A line when something new happened, at most one every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said, self._moves = -PLAIN_SECONDS, -1

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None

    def update(self, story: Story, seconds: float, iterations: int) -> None:
        if seconds - self._said >= PLAIN_SECONDS and len(story.moves) != self._moves:
            self._said, self._moves = seconds, len(story.moves)
            self._console.print(f"[{seconds:4.0f} s] {status_of(story, iterations)}", markup=False, highlight=False)


def make_display(console: Console, seconds: float) -> Display:
    """The display that suits where the output goes."""
    return TerminalDisplay(console, seconds) if console.is_terminal else PlainDisplay(console)
