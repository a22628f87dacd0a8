# SPDX-License-Identifier: Apache-2.0
"""Launchers of several nodes as threads of this process, and what their nodes run: nothing but a result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from lagom.nodes.enrolment import Session, enrol
from lagom.nodes.exchange import Done, Exchange, NodeFacts
from lagom.nodes.folder_exchange import FolderExchange
from lagom.nodes.heartbeat import Life
from lagom.nodes.node_facts import facts_of
from lagom.nodes.worker import DEADLINE

Given = TypeVar("Given")
#: Long enough that a busy machine makes nobody silent.
LIFE = Life(beat=0.05, silent=120.0)
FACTS = facts_of(["torchrun", "train.py"], {"NCCL_ALGO": "Ring"}, plugin="ab12", nccl=23007, gpu="H200")
SETTINGS = {"NCCL_BUFFSIZE": "8388608"}


class MemoryExchange(Exchange):
    """Records of one process."""

    def __init__(self, kept: dict[str, bytes] | None = None, deadline: float = DEADLINE) -> None:
        super().__init__("memory", deadline)
        self.kept = {} if kept is None else kept

    def _gone(self, why: str) -> str:
        return f"{self.name} cannot be used ({why})."

    def _put_once(self, key: str, data: bytes) -> bytes:
        return self.kept.setdefault(key, data)

    def _put(self, key: str, data: bytes) -> None:
        self.kept[key] = data

    def _get(self, key: str) -> bytes | None:
        return self.kept.get(key)


class HangingExchange(MemoryExchange):
    """Nothing that is asked of it comes back before ``release`` is set."""

    def __init__(self, deadline: float) -> None:
        super().__init__(deadline=deadline)
        self.release = threading.Event()

    def _in_time(self, what: Callable[[], Given], deadline: float = 0.0) -> Given:
        def hang() -> Given:
            self.release.wait(600.0)
            return what()

        return super()._in_time(hang, deadline)


def at_once(tasks: Sequence[Callable[[], Given]]) -> list[Future[Given]]:
    """Each in a thread of its own; returns when all have ended."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [pool.submit(task) for task in tasks]


def join(
    exchange: Exchange, name: str, count: int = 2, facts: NodeFacts = FACTS, wait: float = 120.0, life: Life = LIFE
) -> Session:
    return enrol(exchange, count, name, facts, wait, life)


def pair(folder: Path) -> tuple[Session, Session]:
    """Two launchers that have agreed, the coordinator first."""
    one, two = at_once([lambda name=name: join(FolderExchange(folder), name) for name in "ab"])  # type: ignore[misc]
    first, second = sorted((one.result(), two.result()), key=lambda session: session.seat)
    return first, second


class Processes:
    """What a node runs: each process gives ``done``, at once or when it is asked to end."""

    def __init__(self, done: Done, *, until_stopped: bool = False) -> None:
        self.done, self.until_stopped = done, until_stopped
        self.begun: list[tuple[dict[str, str], int, float | None]] = []
        self.is_running = threading.Event()

    def __call__(
        self, settings: Mapping[str, str], number: int, limit: float | None, is_over: Callable[[bool], bool]
    ) -> Done:
        self.begun.append((dict(settings), number, limit))
        self.is_running.set()
        while self.until_stopped and not is_over(False):
            time.sleep(0.005)
        return self.done
