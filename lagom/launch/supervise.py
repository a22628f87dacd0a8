# SPDX-License-Identifier: Apache-2.0
"""Runs the job's command as if it were started directly: terminal, signals and exit code are its own.

The command stays in our process group, so the terminal's Ctrl-C and Ctrl-Z reach it; signals sent to us with kill() are
passed on. Signals are taken by waiting for them, not by handlers: ``si_code`` distinguishes the two, and inside
:func:`signals_held` no signal can end us before we have cleaned up. Threads that a library starts when it is imported
must not take the signals either: import such libraries inside :func:`signals_left_to_us`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence

Mask = set[signal.Signals]

FORWARDED: Mask = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
WAITED: Mask = {*FORWARDED, signal.SIGCHLD}
SI_KERNEL = 0x80  # the terminal sent it, to the whole foreground group: the command has it already
DIED_BY_SIGNAL = 128


@contextlib.contextmanager
def signals_left_to_us() -> Iterator[None]:
    """Threads that are started inside have these signals blocked for good, so the kernel gives them to this thread."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def signals_held() -> Iterator[Mask]:
    """Signals wait until they are asked for; yields the mask that children must be given back."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        while signal.sigtimedwait(WAITED, 0) is not None:
            pass  # meant for a command that has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    mask: Mask,
    on_other_child: Callable[[], None] = lambda: None,
) -> int:
    """Run ``command`` to its end under :func:`signals_held`; returns its exit code, or 128 + the signal it died by.

    ``on_other_child`` is called when another child of ours may have ended. Raises OSError if it cannot be started.
    """
    early = signal.sigtimedwait(FORWARDED, 0)
    if early is not None:  # asked to end before it began
        return DIED_BY_SIGNAL + early.si_signo
    # Python ignores these two; the command shall have the defaults it would have from a shell.
    defaults = [signal.SIGPIPE, signal.SIGXFSZ]
    child = os.posix_spawnp(command[0], list(command), dict(environ), setsigmask=mask, setsigdef=defaults)
    return _watch(child, on_other_child)


def _watch(child: int, on_other_child: Callable[[], None]) -> int:
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else DIED_BY_SIGNAL - code
        info = signal.sigwaitinfo(WAITED)
        if info.si_signo == signal.SIGCHLD:
            on_other_child()
        elif info.si_code != SI_KERNEL:
            with contextlib.suppress(ProcessLookupError):  # it has just ended; the next waitpid says so
                os.kill(child, info.si_signo)
