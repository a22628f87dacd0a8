# SPDX-License-Identifier: Apache-2.0
"""Every environment variable of the product, once: name, type, default, meaning.

``lagom env --help`` and the table in docs/settings.md are made from :data:`SETTINGS`;
``tests/unit/cli/test_settings.py`` freezes the list and compares it with what ``tuner_plugin/settings.c`` reads.
Nothing else in Python reads a ``LAGOM_*`` variable.
"""

from __future__ import annotations

import difflib
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lagom.errors import SettingError


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable. ``kind`` is what a value looks like; ``choices`` closes it. ``readers`` name who looks at it:
    ``plugin`` (C, in every rank), ``controller`` and ``launcher`` (Python), ``job`` (``lagom.parallel``, in every
    rank). ``internal``: set by our own tools only."""

    name: str
    kind: str
    default: str
    readers: tuple[str, ...]
    text: str
    choices: tuple[str, ...] = ()
    internal: bool = False

    def read(self, environ: Mapping[str, str]) -> str:
        """The value in force, or the default where unset or empty; raises :class:`SettingError` on a wrong one."""
        value = environ.get(self.name, "") or self.default
        if self.choices and value not in self.choices:
            wanted = ", ".join(self.choices)
            raise SettingError(f"{self.name}={value} is not understood; set it to one of: {wanted}.")
        return value


SETTINGS = (
    Setting(
        "LAGOM_MODE",
        "word",
        "auto",
        ("plugin", "controller", "launcher"),
        "`off`: the plugin does nothing at all. `tune`: search for better configs while the job runs. `replay`: use "
        "those of LAGOM_CONFIG, without a search and without a controller (on NCCL 2.21 to 2.26 its size rules, or "
        "those of LAGOM_SET; nothing else can be done there). `replay-or-tune`: the same, and tune if the saved config "
        "does not fit; with `lagom run` also if it is of another program. `auto`: `replay` if LAGOM_CONFIG is set, "
        "else `tune`.",
        choices=("auto", "tune", "replay", "replay-or-tune", "off"),
    ),
    Setting(
        "LAGOM_CONFIG",
        "file",
        "",
        ("plugin", "launcher"),
        "The saved config of an earlier tuning run (`config.lagom` in its log folder). Refused, with the reason in "
        "the log, when its fingerprint (NCCL version, ranks, nodes, GPU, peer access) does not fit; where the job "
        "makes other calls than the saved config's, NCCL chooses, and the log says so.",
    ),
    Setting(
        "LAGOM_DIR",
        "folder",
        "./lagom-<job>",
        ("plugin", "controller", "launcher"),
        "Where the log goes: decisions.jsonl, controller.log, config.lagom, pins. Named in the first and last line "
        "of the job. Each node of a job that spans several has its own in it, `node-` with NCCL_HOSTID or the "
        "host's name.",
    ),
    Setting(
        "LAGOM_JOB_ID",
        "text",
        "",
        ("plugin", "controller", "launcher"),
        "Names the job, so that its ranks and its controller on one node find each other. `lagom run` sets it. "
        "Without it the name comes from torchelastic, Slurm, PMIx, or the master's address and port. Two jobs at once "
        "need two names.",
    ),
    Setting(
        "LAGOM_STRATEGY",
        "word",
        "auto",
        ("controller", "launcher"),
        "The search strategy; `lagom` is the paper's algorithm. `package.module:Class` names your own, installed "
        "or on PYTHONPATH. A name that does not exist is answered with the list.",
    ),
    Setting(
        "LAGOM_SET",
        "rules",
        "",
        ("plugin", "controller", "launcher"),
        "Pins configs by hand instead of searching: rules like `allgather:>=1M:nc=4,chunk=512K`, separated by `;`. "
        "The first rule that matches a call's function and size wins; what a rule does not name is left to NCCL.",
    ),
    Setting(
        "LAGOM_NT",
        "0 or 1",
        "0",
        ("plugin", "controller"),
        "`1` lets the search also set threads per channel (NT, RING only). NCCL offers no way to do that, so the "
        "plugin writes a field of NCCL's own; it does so only on builds that it recognises, and says why where it "
        "does not.",
        choices=("0", "1"),
    ),
    Setting(
        "LAGOM_CONTROLLER",
        "word",
        "auto",
        ("plugin", "launcher"),
        "`auto`: the first rank of a node starts the controller when none is running (it ends with the job). `none`: "
        "never.",
        choices=("auto", "none"),
    ),
    Setting(
        "LAGOM_PYTHON",
        "file",
        "",
        ("plugin",),
        "The Python that a rank starts the controller with, an absolute path. `lagom run` and `lagom env` set it to "
        "their own. Default: the one in the first line of the installed `lagom` script.",
    ),
    Setting(
        "LAGOM_SHM_DIR",
        "folder",
        "/dev/shm",
        ("plugin", "controller", "launcher"),
        "Where the shared memory of ranks and controller lies: under 8 MB a node and job, in memory, never on a "
        "network disk.",
    ),
    Setting(
        "LAGOM_TIMELINE",
        "0 or 1",
        "0",
        ("plugin",),
        "`1`: while the job is being learnt and tuned, its kernels are recorded through CUPTI, in short windows, so "
        "that compute time (Y) and exposed calls are seen too. Off by default: CUPTI serves one user a process, and a "
        "torch.profiler in the same process loses kernels to us. `0`: NCCL's own events and the clock must do.",
        choices=("0", "1"),
    ),
    Setting(
        "LAGOM_HEADROOM",
        "built:stock",
        "",
        ("plugin", "controller", "launcher"),
        "Channels that NCCL is set to build (NCCL_MIN_NCHANNELS) and those it builds by itself, like `32:24`: then "
        "NC may be searched upwards, and every call that is not tuned keeps stock's. `lagom run --headroom 32` sets "
        "it; the same on every rank.",
    ),
    Setting(
        "LAGOM_LOG_LEVEL",
        "word",
        "info",
        ("plugin",),
        "How much the plugin says in NCCL's log (NCCL_DEBUG=INFO shows it): `warn` = only what keeps it from tuning.",
        choices=("warn", "info"),
    ),
    Setting(
        "LAGOM_CACHE",
        "folder or off",
        "~/.cache/lagom",
        ("launcher", "controller", "job"),
        "Where the saved configs of tuned jobs are kept: `lagom run` replays a job's own at its next start, and "
        "searches where that does not fit (`--fresh`: at once). The choices of `lagom.parallel` are kept there, too. "
        "The default is below XDG_CACHE_HOME where that is set. `off`, or the empty word: nothing is kept and nothing "
        "is used.",
    ),
    Setting(
        "LAGOM_NODES",
        "word",
        "off",
        ("controller",),
        "What is searched in a job that spans several nodes. `off`: nothing, because the slowest node sets the time of "
        "an iteration, so that nodes that search by themselves slow each other and hardly see what helps; `lagom tune` "
        "finds start settings for all of them. `alone`: each node searches its own communicators all the same.",
        choices=("off", "alone"),
    ),
    Setting(
        "LAGOM_EXCHANGE",
        "folder or HOST:PORT",
        "",
        ("launcher",),
        "Where the launchers of a job on several nodes agree, before they start any rank, on a saved config of the "
        "cache: all nodes use it, or none. A folder that all of them see, by its absolute path, or an address of one "
        "of them and a free port. Default: where `lagom tune --nnodes` found it.",
    ),
    Setting(
        "LAGOM_ATLAS",
        "word",
        "on",
        ("controller",),
        "Whether a search first tries what searches of other jobs found on the same kind of machine (the atlas: a list "
        "that comes with Lagom, and the saved configs in LAGOM_CACHE). `off`: it does not.",
        choices=("on", "off"),
    ),
    Setting(
        "LAGOM_PARALLEL",
        "word",
        "auto",
        ("job",),
        "How the operators of `lagom.parallel` do their work, on every rank the same. `auto`: each call in the way "
        "that was measured to be fastest at its first use. Else always in that way, and in the plain one where that "
        "cannot be.",
        choices=("auto", "plain", "fused", "copies", "copies_two_streams", "looped"),
    ),
    Setting(
        "LAGOM_TRUSTED_OWNER",
        "number",
        "",
        ("controller", "launcher"),
        "A user id whose folders and files count as yours: for a file system that maps owners (NFS with root squashed, "
        "volumes of Kubernetes). Whoever has that user id can then decide what `lagom tune` and `lagom run` set for "
        "your job, and so run code as you.",
    ),
    Setting(
        "LAGOM_TRIAL",
        "number",
        "",
        (),
        "The number of the process, set by `lagom tune` for the job: for a folder of its own.",
        internal=True,
    ),
    Setting(
        "LAGOM_LAUNCHER",
        "0 or 1",
        "0",
        ("plugin",),
        "`1`: `lagom run` prints what it reads from the ranks' shared memory, so that they do not write it to stderr "
        "themselves. Set by `lagom run`.",
        choices=("0", "1"),
        internal=True,
    ),
    Setting(
        "LAGOM_CLOCK",
        "word",
        "real",
        ("plugin",),
        "`simulated`: time is what a virtual rank says it is. Set by `lagom demo` and the tests.",
        choices=("real", "simulated"),
        internal=True,
    ),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
#: Beginnings of the variables that only our tests and benchmarks read; a developer's shell may hold them.
OF_TESTS = tuple(f"LAGOM_{word}" for word in ("TEST_", "ABI_", "AGREEMENT_", "FUZZ_", "MODEL_", "SANITIZE", "COMMIT"))


NODE_FOLDER = "node-"


def read(name: str, environ: Mapping[str, str] | None = None) -> str:
    """The value of a variable of the table in ``environ`` (default: this process's); raises :class:`SettingError`."""
    return BY_NAME[name].read(os.environ if environ is None else environ)


def is_simulated(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a job started in ``environ`` is one of virtual ranks."""
    return read("LAGOM_CLOCK", environ) == "simulated"


def config_named(environ: Mapping[str, str] | None = None) -> Path | None:
    """The saved config that LAGOM_CONFIG names; None if it is not set."""
    named = read("LAGOM_CONFIG", environ)
    return Path(named) if named else None


@dataclass(frozen=True, slots=True)
class UnknownVariable:
    """A ``LAGOM_`` variable that nothing reads. ``nearest``: the one that may be meant; empty = none is like it."""

    name: str
    nearest: str

    @property
    def sentence(self) -> str:
        """For a warning."""
        return f"{self.name} is not a variable of lagom; " + (
            f"did you mean {self.nearest}?" if self.nearest else "`lagom env --settings` lists them."
        )


def unknown_variables(environ: Mapping[str, str]) -> list[UnknownVariable]:
    """Those of ``environ``, by name: a misspelt variable has no effect."""
    unknown = (name for name in sorted(environ) if name.startswith("LAGOM_") and name not in BY_NAME)
    return [UnknownVariable(name, _nearest(name)) for name in unknown if not name.startswith(OF_TESTS)]


def _nearest(name: str) -> str:
    """Compared without the prefix, which is the same in all of them."""
    known = {setting.name.removeprefix("LAGOM_"): setting.name for setting in SETTINGS if not setting.internal}
    close = difflib.get_close_matches(name.removeprefix("LAGOM_"), known, n=1)
    return known[close[0]] if close else ""


def split_rules(text: str) -> list[str]:
    """The rules of a LAGOM_SET value or of a pins file: separated by ``;`` or newlines, ``#`` starts a comment."""
    lines = (line.split("#", 1)[0] for line in text.splitlines())
    return [rule for line in lines for part in line.split(";") if (rule := part.strip())]


def log_folder(job: str, environ: Mapping[str, str] | None = None) -> Path:
    """LAGOM_DIR, else ``./lagom-<job>`` with everything that does not belong in a file name replaced."""
    named = (os.environ if environ is None else environ).get("LAGOM_DIR", "")
    if named:
        return Path(named).absolute()
    return Path(f"lagom-{_safe_name(job)}").absolute()


def node_folder(environ: Mapping[str, str]) -> str:
    """The name of a node's own folder in the log folder of a job that spans nodes: by what NCCL tells machines apart
    by."""
    return f"{NODE_FOLDER}{_safe_name(environ.get('NCCL_HOSTID', '') or socket.gethostname())}"


def _safe_name(text: str) -> str:
    """With everything that does not belong in a file name replaced."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text)


def cache_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """LAGOM_CACHE, else ``lagom`` in the user's cache folder; None if it is off, or the user has no home."""
    here = os.environ if environ is None else environ
    named = here.get("LAGOM_CACHE")
    if named is not None:
        return None if named.lower() in ("", "off") else Path(named).absolute()
    base = here.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # a relative one is to be ignored, says the XDG specification
        return Path(base, "lagom")
    try:
        return Path.home() / ".cache" / "lagom"
    except RuntimeError:
        return None


def new_job_id() -> str:
    """A name for a job that has none: start time and process, e.g. ``20261120-093015-4711``."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def interpreter() -> str:
    """The Python to start the controller with: this one. Not resolved, or a venv would lose its packages."""
    return sys.executable


def table(*, internal: bool = False) -> str:
    """The settings as a Markdown table, for docs/settings.md."""
    rows = ["| variable | value | default | meaning |", "|---|---|---|---|"]
    for setting in SETTINGS:
        if setting.internal and not internal:
            continue
        values = " ".join(f"`{choice}`" for choice in setting.choices) or setting.kind
        default = f"`{setting.default}`" if setting.default else "-"
        rows.append(f"| `{setting.name}` | {values} | {default} | {setting.text} |")
    return "\n".join(rows)
