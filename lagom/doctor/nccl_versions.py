"""What each NCCL lets a plugin do: one table, for doctor and README, and what the plugin is held to.

Sources: the symbol names that each wheel's libnccl.so.2 looks up (2.19.3 to 2.32.3), and the tuner headers of each
release. ``tests/system/test_every_nccl.py`` plays every row to the plugin and compares what it says it can do;
``make test-abi`` asks the wheels.
"""

from __future__ import annotations

from dataclasses import dataclass

from lagom.doctor.nccl_builds import Version, known_builds, version_from_code
from lagom.format import format_version

__all__ = [
    "TABLE",
    "Capabilities",
    "Version",
    "beyond_what_is_known",
    "capabilities",
    "parse_version",
    "support_table",
    "threads_known",
    "threads_versions",
    "version_from_code",
]

TUNERS_KNOWN = 6  # newest tuner interface that a wheel has shown


@dataclass(frozen=True, slots=True)
class Capabilities:
    """For NCCL from ``since`` on. ``tuner``/``profiler``: API versions it would take from our plugin (0 = none)."""

    since: Version
    tuner: int
    profiler: int
    online: str  # which variables it takes to change configs in a running job: "tuner", "both"; "" = cannot be done
    replay: str  # what LAGOM_MODE=replay can put in force: "profile", "size rules"; "" = nothing
    knobs: tuple[str, ...]
    torch: str  # torch releases whose wheels bring it
    remark: str = ""  # a limit of its own, as a clause

    @property
    def sentence(self) -> str:
        """For the doctor."""
        if not self.tuner:
            return "its tuner interface is too old for lagom's plugin, which is not loaded"
        knobs = f"can set {', '.join(self.knobs)}{f' ({self.remark})' if self.remark else ''}"
        if not self.online:
            return (
                f"tuner API v{self.tuner}: it does not tell a communicator's id, ranks cannot agree while the job runs "
                f"and nothing is tuned; size rules can be replayed (LAGOM_MODE=replay), on one node; {knobs}"
            )
        how = {
            "tuner": "tunes a running job",
            "both": "tunes a running job if NCCL_PROFILER_PLUGIN names the plugin too",
        }[self.online]
        profiler = f", profiler API v{self.profiler}" if self.profiler else ""
        return f"tuner API v{self.tuner}{profiler}: {how}; {knobs}"


A_P_NC = ("algorithm", "protocol", "channels")
ALL = (*A_P_NC, "chunk")
PLAIN = "algorithm and protocol: ring, for AllReduce also tree, with LL or SIMPLE"
BOUNDED = "channels of AllGather: no more than are known to be built"
NEVER_RAISED = "channels: never above NCCL's own pick for the size"
TABLE = (
    Capabilities((2, 0, 0), 0, 0, "", "", (), "up to 2.4"),
    Capabilities((2, 21, 0), 2, 0, "", "size rules", A_P_NC, "2.5, 2.6", PLAIN),
    Capabilities((2, 22, 0), 3, 0, "", "size rules", A_P_NC, "-"),
    Capabilities((2, 24, 0), 4, 0, "", "size rules", A_P_NC, "2.7"),
    Capabilities((2, 27, 0), 4, 4, "both", "profile", A_P_NC, "2.8, 2.9, 2.10 (CUDA 12)"),
    Capabilities((2, 28, 0), 5, 5, "tuner", "profile", A_P_NC, "2.10 (CUDA 13), 2.11"),
    Capabilities((2, 29, 0), 5, 6, "tuner", "profile", A_P_NC, "2.12, 2.13", BOUNDED),
    Capabilities((2, 30, 3), 6, 6, "tuner", "profile", ALL, "later ones, or by `LD_PRELOAD`", BOUNDED),
    Capabilities((2, 31, 0), 6, 7, "tuner", "profile", ALL, "later ones, or by `LD_PRELOAD`", NEVER_RAISED),
)


def threads_versions() -> tuple[Version, ...]:
    """Releases with a build that the plugin can set threads in: known, and telling an id to recognise memory by."""
    found = {build.version for build in known_builds() if capabilities(build.version).online}
    return tuple(sorted(found))


def threads_known(version: Version) -> bool:
    """Whether LAGOM_NT=1 can work on a build of this release."""
    return version in threads_versions()


def beyond_what_is_known(version: Version) -> str:
    """A clause if this NCCL is newer than every one our declarations were compared with; else empty."""
    newest = max(build.version for build in known_builds())
    if version <= newest:
        return ""
    return (
        f"it is newer than {format_version(newest)}, the last release lagom was compared with: where it looks for a "
        f"tuner interface above v{TUNERS_KNOWN}, it takes the plugin through its own adapter for v{TUNERS_KNOWN}"
    )


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


def support_table() -> str:
    """The table as Markdown, for the README."""
    columns = "NCCL | comes with torch | tuner / profiler API | while the job runs | replay | NC | A, P | C"
    head = f"| {columns} | NT (`LAGOM_NT=1`) |"
    following = (*(entry.since for entry in TABLE[1:]), None)
    rows = [_row(entry, upper) for entry, upper in zip(TABLE, following, strict=True)]
    return "\n".join([head, "|---|---|---|---|---|---|---|---|---|", *rows])


def _row(entry: Capabilities, upper: Version | None) -> str:
    online = {"tuner": "yes", "both": "with both variables", "": "no: ranks have no common id"}[entry.online]
    apis = (
        f"v{entry.tuner} / {f'v{entry.profiler}' if entry.profiler else '-'}" if entry.tuner else "too old, not loaded"
    )
    cells = [
        _span(entry.since, upper),
        entry.torch,
        apis,
        online if entry.tuner else "no",
        entry.replay or "-",
        "lower only" if entry.tuner else "-",
        _algorithms_text(entry),
        "lower only" if "chunk" in entry.knobs else "-",
        _threads_text(entry.since, upper),
    ]
    return f"| {' | '.join(cells)} |"


def _algorithms_text(entry: Capabilities) -> str:
    if not entry.tuner:
        return "-"
    return "ring and tree, LL and SIMPLE" if entry.remark == PLAIN else "yes"


def _span(since: Version, upper: Version | None) -> str:
    if since == TABLE[0].since:
        return f"below {_short(TABLE[1].since)}"
    return f"{_short(since)} and later" if upper is None else f"{_short(since)} to below {_short(upper)}"


def _threads_text(since: Version, upper: Version | None) -> str:
    """The releases of a row on whose wheels threads can be set; neighbours as a range."""
    runs: list[list[Version]] = []
    for version in threads_versions():
        if version < since or (upper is not None and version >= upper):
            continue
        if runs and runs[-1][-1][:2] == version[:2] and runs[-1][-1][2] + 1 == version[2]:
            runs[-1].append(version)
        else:
            runs.append([version])
    texts = (format_version(run[0]) + (f"-{run[-1][2]}" if len(run) > 1 else "") for run in runs)
    return ", ".join(texts) or "-"


def _short(version: Version) -> str:
    return format_version(version).removesuffix(".0")
