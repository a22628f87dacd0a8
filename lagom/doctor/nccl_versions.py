"""What each NCCL lets a plugin do: one table, for doctor and README.

Sources: the symbol names that each wheel's libnccl.so.2 looks up (2.19.3 to 2.32.3), and the tuner headers of each
release.
"""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """For NCCL from ``since`` on. ``tuner``/``profiler``: API versions it would take from our plugin (0 = none)."""

    since: Version
    tuner: int
    profiler: int
    online: str  # which variables it takes to change configs in a running job: "tuner", "both"; "" = cannot be done
    knobs: tuple[str, ...]
    torch: str  # torch releases whose wheels bring it

    @property
    def sentence(self) -> str:
        """For the doctor."""
        if not self.tuner:
            return "its tuner interface is too old for lagom's plugin, which is not loaded"
        if not self.online:
            return f"tuner API v{self.tuner}: does not tell a communicator's id, ranks cannot agree, lagom stands aside"
        how = {
            "tuner": "tunes a running job",
            "both": "tunes a running job if NCCL_PROFILER_PLUGIN names the plugin too",
        }[self.online]
        profiler = f", profiler API v{self.profiler}" if self.profiler else ""
        return f"tuner API v{self.tuner}{profiler}: {how}; can set {', '.join(self.knobs)}"


A_P_NC = ("algorithm", "protocol", "channels")
TABLE = (
    Capabilities((2, 0, 0), 0, 0, "", (), "up to 2.6"),
    Capabilities((2, 24, 0), 4, 0, "", (), "2.7"),
    Capabilities((2, 27, 0), 4, 4, "both", A_P_NC, "2.8, 2.9, 2.10 (CUDA 12)"),
    Capabilities((2, 28, 0), 5, 5, "tuner", A_P_NC, "2.10 (CUDA 13), 2.11"),
    Capabilities((2, 29, 0), 5, 6, "tuner", A_P_NC, "2.12, 2.13"),
    Capabilities((2, 30, 3), 6, 6, "tuner", (*A_P_NC, "chunk"), "later ones, or by `LD_PRELOAD`"),
)

#: Releases (first, last) whose layout the plugin knows well enough to set threads, as in tuner_plugin/threads.c.
THREADS_KNOWN = (
    ((2, 27, 3), (2, 27, 3)),
    ((2, 27, 5), (2, 27, 7)),
    ((2, 28, 3), (2, 28, 3)),
    ((2, 28, 7), (2, 28, 7)),
    ((2, 28, 9), (2, 28, 9)),
    ((2, 29, 2), (2, 29, 3)),
    ((2, 29, 7), (2, 29, 7)),
    ((2, 30, 3), (2, 30, 4)),
    ((2, 30, 7), (2, 30, 7)),
    ((2, 31, 2), (2, 31, 2)),
    ((2, 32, 3), (2, 32, 3)),
)


def threads_known(version: Version) -> bool:
    """Whether LAGOM_NT=1 can work on this release."""
    return any(first <= version <= last for first, last in THREADS_KNOWN)


def capabilities(version: Version) -> Capabilities:
    """What the given NCCL can do."""
    return next(entry for entry in reversed(TABLE) if version >= entry.since)


def parse_version(text: str) -> Version | None:
    """``2.30.7``, ``2.30.7+cuda13.0`` or ``2.30.7.post1`` as numbers; None if it is no version."""
    parts = text.split("+")[0].split(".")[:3]
    if len(parts) < 2 or not all(part.isdigit() for part in parts):
        return None
    numbers = [int(part) for part in parts] + [0]
    return numbers[0], numbers[1], numbers[2]


def version_from_code(code: int) -> Version:
    """``ncclGetVersion``'s number: 23007 is 2.30.7."""
    return code // 10000, code // 100 % 100, code % 100


def version_text(version: Version) -> str:
    """``2.30.7``."""
    return ".".join(map(str, version))


def support_table() -> str:
    """The table as Markdown, for the README."""
    head = "| NCCL | comes with torch | tuner / profiler API | while the job runs | NC | A, P | C | NT (`LAGOM_NT=1`) |"
    following = (*(entry.since for entry in TABLE[1:]), None)
    rows = [_row(entry, upper) for entry, upper in zip(TABLE, following, strict=True)]
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *rows])


def _row(entry: Capabilities, upper: Version | None) -> str:
    online = {"tuner": "yes", "both": "with both variables", "": "no: ranks have no common id"}[entry.online]
    apis = (
        f"v{entry.tuner} / {f'v{entry.profiler}' if entry.profiler else '-'}" if entry.tuner else "too old, not loaded"
    )
    lower_only = "lower only" if entry.online else "-"
    cells = [
        _span(entry.since, upper),
        entry.torch,
        apis,
        online if entry.tuner else "no",
        lower_only,
        "yes" if entry.online else "-",
        "lower only" if "chunk" in entry.knobs else "-",
        _threads_text(entry.since, upper),
    ]
    return f"| {' | '.join(cells)} |"


def _span(since: Version, upper: Version | None) -> str:
    if since == TABLE[0].since:
        return f"below {_short(TABLE[1].since)}"
    return f"{_short(since)} and later" if upper is None else f"{_short(since)} to below {_short(upper)}"


def _threads_text(since: Version, upper: Version | None) -> str:
    """The builds of a row on which threads can be set."""
    inside = [(a, b) for a, b in THREADS_KNOWN if a >= since and (upper is None or a < upper)]
    return ", ".join(version_text(a) if a == b else f"{version_text(a)}-{b[2]}" for a, b in inside) or "-"


def _short(version: Version) -> str:
    return version_text(version).removesuffix(".0")
