# SPDX-License-Identifier: Apache-2.0
"""The tables of README.md and docs/measured.md, from raw results: each speed-up beside what was set by hand there.

A row never sets a search beside a figure of another job, another number of GPUs or another run.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import start_results, whole_runs_page
from benchmarks.matrix.page_values import ending, is_older, kept_stock, nccl, result, verdict_of
from benchmarks.matrix.rows import rows as matrix_rows
from benchmarks.matrix.verdicts import between
from benchmarks.whole_run_jobs import AGAIN, PLAIN, SEARCH
from benchmarks.whole_runs_page import AFTER, WHOLE
from lagom.experiment.estimate import SpeedupEstimate
from lagom.wire.plan import parse_rule

RESULTS = Path(__file__).parent / "results"
#: Two speed-ups are called equal where the interval of their ratio lies within this margin of 1, which README names.
EQUAL = 0.02
NONE = "–"
FIRST_SLICE, HOST_SEARCH = "first_slice_h200x4_202611", "host_search_h200x4_202611"
#: Parts of the first runs, by tokens.
FIRST_4096, FIRST_8192 = 2, 3
COSTS = ("cost_h200x2_202611", "cost_h200x4_202611")
#: README shows a cost from so many rounds on, with a search that had begun; docs/measured.md has them all.
COST_ROUNDS = 6


class Ratio(NamedTuple):
    """A speed-up over plain NCCL with its 95 % interval."""

    value: float
    low: float
    high: float
    digits: int = 3

    @classmethod
    def of(cls, found: SpeedupEstimate | None) -> Ratio:
        """With the digits that ``lagom tune`` prints. Raises ValueError where nothing was measured."""
        if found is None:
            raise ValueError("too few processes for a ratio")
        return cls(found.value, found.low, found.high, found.digits)

    @property
    def text(self) -> str:
        """``1.244 [1.217, 1.271]``."""
        return f"{self.value:.{self.digits}f} [{self.low:.{self.digits}f}, {self.high:.{self.digits}f}]"


class Regime(NamedTuple):
    """A heading of docs/measured.md, and what README calls it."""

    title: str
    short: str


NVLINK = Regime("NVLink", "NVLink")
HOST = Regime("Host memory", "host memory")
SOCKETS = Regime("Nodes over sockets", "two nodes over sockets")
COST = Regime("Nothing to gain: what tuning costs", "NVLink, nothing to gain")
REGIMES = (NVLINK, HOST, SOCKETS, COST)
OLDER = "older strategy"
#: Arms of a row of the matrix that are set by hand: the best one number of channels, and configs.
CAP, SET = "static", "set="
#: Beside a commit, where the step time is the slowest rank's and not the mean over ranks.
OLDER_Z = " †"


class MeasuredRow(NamedTuple):
    """One job in one regime; all of it is from one run, or from processes in turns."""

    regime: Regime
    job: str
    gpus: str
    how: str  # strategy or command of ours
    plain_ms: float
    ours: Ratio | str
    hand: str  # what was set by hand; a dash where nothing was
    by_hand: Ratio | None
    over: Ratio | None  # Lagom over by hand
    cost: str  # of the search
    source: str  # command, commit and page
    note: str = ""
    in_readme: bool = False


# -- reading results


def matrix(gpus: int) -> dict[str, Any]:
    """The raw results of that many H200."""
    return raw(_matrix_name(gpus))


def _matrix_name(gpus: int) -> str:
    return f"matrix_h200x{gpus}_202611"


@cache
def raw(name: str) -> Any:
    """A file of raw results, read once: rows ask for the same ones again and again, and do not change it."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def ratio(gpus: int, row: str, arm: str) -> Ratio:
    """Of one arm over plain NCCL. Raises KeyError where it was not measured."""
    found = result(matrix(gpus), row, arm)
    if found is None or found["speedup"] is None:
        raise KeyError(f"{row}: {arm} was not measured")
    return Ratio(found["speedup"], found["low"], found["high"])


def cost_text(name: str, compared: str = "speed") -> str:
    """Mean step of whole processes without Lagom over that of the job tuned live, search included, with its interval or
    with how few rounds there are. ``compared``: a field of the row's verdict."""
    row = next(row for row in matrix_rows() if row.name == name)
    data = next(found for found in map(matrix, (2, 4)) if name in found["rows"])
    return str(verdict_of(row, data["rows"][name])[compared])


def of_whole_processes(job: str, part: str, file: str = HOST_SEARCH, arm: str = SEARCH) -> Ratio:
    """What the default strategy, or another arm, gave a job of ``whole_runs.py``: ratio of means of processes."""
    by_round = whole_runs_page.rounds(raw(file), job)
    return Ratio.of(whole_runs_page.by_means(by_round, (PLAIN, AGAIN), arm, part))


def plain_step(by_round: list[dict[str, Any]]) -> float:
    """Milliseconds a step of a job of ``whole_runs.py`` without Lagom: mean over its processes."""
    return statistics.fmean(mean for arm in (PLAIN, AGAIN) for mean in whole_runs_page.means(by_round, arm))


# -- rows


def rows() -> Iterator[MeasuredRow]:
    """In the order of docs/measured.md."""
    yield _searched(NVLINK, 4, "default-nvlink-fsdp-4096", "auto", in_readme=True)
    yield _searched(NVLINK, 2, "default-nvlink-fsdp-4096", "auto")
    yield _searched(NVLINK, 4, "default-nvlink-tp-8192", "auto")
    yield _searched(NVLINK, 2, "default-nvlink-ep-16384", "auto")
    yield _searched(NVLINK, 2, "default-nvlink-ddp-8192", "auto")
    for gpus, name in (
        (4, "nvlink-fsdp-2048"), (4, "nvlink-fsdp-8192"), (4, "nvlink-ddp-8192"), (2, "foreign-titan-llama3"),
    ):  # fmt: skip
        yield _searched(NVLINK, gpus, name)
    windows = "FSDP, 4 layers, 4,096 tokens, symmetric buffers"
    found = Ratio.of(start_results.confirmed(start_results.TWO_WINDOWS))
    yield _started(NVLINK, windows, start_results.TWO_WINDOWS, found, "copy engines: what was found", None)
    yield _copy_engines()
    yield _searched(HOST, 8, "host-guided-16384", "guided", note=f"{OLDER}, 40 s to search", in_readme=True)
    yield from _whole_processes()
    yield _first_slice()
    for gpus, name in ((4, "default-fsdp-8192"), (2, "default-fsdp-8192"), (2, "default-fsdp-16384")):
        yield _searched(HOST, gpus, name, "auto")
    yield _searched(HOST, 2, "host-ddp-8192", "auto")
    yield _searched(HOST, 2, "foreign-trainer")
    yield _searched(HOST, 2, "foreign-titan-qwen3")
    yield _alltoall()
    yield from _sockets()
    yield from _costs()


KINDS = {
    "fsdp.py": "FSDP",
    "ddp.py": "DDP",
    "tp_domino.py": "TP, two half batches",
    "ep_two_batch.py": "EP, OLMoE-1B-7B",
}
MESHES = {"fsdp_tp": "FSDP × TP", "hsdp": "HSDP"}
NAMED = {
    "foreign-trainer": "`transformers.Trainer`, 3 layers, 8,192 tokens",
    "foreign-titan-llama3": "torchtitan, Llama 3 8B, 4,096 tokens",
    "foreign-titan-qwen3": "torchtitan, Qwen 3 0.6B, 8,192 tokens",
}


def job_of(script: str, options: list[str]) -> str:
    """``FSDP, 3 layers, 16,384 tokens``: tokens of a GPU."""
    told = dict(pairwise(options))
    kind = MESHES.get(told.get("--mesh", ""), KINDS[script])
    return f"{kind}, {told['--layers']} layers, {int(told['--tokens']):,} tokens"


def _searched(
    regime: Regime, gpus: int, name: str, strategy: str = "lagom", note: str = OLDER, *, in_readme: bool = False
) -> MeasuredRow:
    """A row of the matrix: a search within a job, and what was set by hand in the same job."""
    data = matrix(gpus)
    entry, stock = data["rows"][name], result(data, name, "stock")
    assert stock is not None
    ours, cost = _searched_arm(gpus, name, strategy)
    hand, arm = _by_hand(data, name)
    direct = between(entry, strategy, arm) if arm else None
    return MeasuredRow(
        regime, NAMED.get(name) or job_of(entry["row"]["script"], entry["row"]["options"]), f"{gpus} H200",
        f"`{strategy}`", stock["iteration"] / 1e6, ours, hand, ratio(gpus, name, arm) if arm else None,
        Ratio.of(direct) if direct else None, cost, _matrix_source(gpus, name), "" if strategy == "auto" else note,
        in_readme,
    )  # fmt: skip


def _searched_arm(gpus: int, name: str, strategy: str) -> tuple[Ratio | str, str]:
    """How a search ended, and what it cost."""
    data = matrix(gpus)
    found = result(data, name, strategy)
    assert found is not None
    cost = f"{found['search']['lost']:.1f} of {found['search']['iterations']} steps"
    if not kept_stock(found):
        return ratio(gpus, name, strategy), cost
    kept = "plain NCCL kept" if ending(found) == "stock is best" else ending(found)
    proposed = f"{strategy}:proposed"
    turned_down = f"; turned down {ratio(gpus, name, proposed).text}" if result(data, name, proposed) else ""
    return kept + turned_down, cost


def _by_hand(data: dict[str, Any], name: str) -> tuple[str, str]:
    """The fastest of the settings that the row names: configs, and the best one number of channels."""
    named = [arm for arm in data["rows"][name]["row"]["arms"] if arm == CAP or arm.startswith(SET)]
    known = {arm: found["speedup"] for arm in named if (found := result(data, name, arm))}
    if not known:
        return NONE, ""
    arm = max(known, key=lambda one: known[one])
    return "best cap" if arm == CAP else _config_text(arm), arm


def _config_text(arm: str) -> str:
    """``3 channels, chunk 512 KiB`` of ``set=any:>=1M:nc=3,chunk=512K``."""
    config = parse_rule(arm.removeprefix(SET)).config
    channels = [] if config.channels is None else [f"{config.channels} channels"]
    chunk = [] if config.chunk_bytes is None else [f"chunk {config.chunk_bytes >> 10} KiB"]
    return ", ".join([*channels, *chunk])


def _matrix_source(gpus: int, name: str) -> str:
    return _bench_source(f"matrix --gpus {gpus} --rows {name}", matrix(gpus), name, _matrix_name(gpus))


def _bench_source(command: str, data: dict[str, Any], name: str, page: str) -> str:
    """Of a row of a file that ``benchmarks.matrix`` wrote."""
    session = data["sessions"][data["rows"][name]["session"]]
    release = nccl(data, next(row for row in matrix_rows() if row.name == name))
    older = OLDER_Z if is_older(data, data["rows"][name]) else ""
    return _source(f"benchmarks.{command} --budget {_budget(session)}", session["commit"], release, page) + older


def _budget(session: dict[str, Any]) -> str:
    """The seconds that a call was given."""
    arguments: list[str] = session["arguments"]
    return arguments[arguments.index("--budget") + 1]


def _source(command: str, commit: str, release: str, page: str) -> str:
    return f"`{command}`; NCCL {release.partition(',')[0]}; [{commit}](../benchmarks/results/{page}.md)"


def _copy_engines() -> MeasuredRow:
    name, arm = "nvlink-zero-cta-4096", "env=FSDP_COPY_ENGINE=1,NCCL_CTA_POLICY=2"
    stock = result(matrix(2), name, "own:stock")
    assert stock is not None
    job = "FSDP, 4 layers, 4,096 tokens; by hand: the job changed to symmetric buffers"
    return MeasuredRow(NVLINK, job, "2 H200", NONE, stock["iteration"], "not run", "copy engines", ratio(2, name, arm),
                       None, NONE, _matrix_source(2, name))  # fmt: skip


def _whole_processes() -> Iterator[MeasuredRow]:
    """The default strategy with 40 s to search, in whole processes."""
    data = raw(HOST_SEARCH)
    session = data["sessions"][0]
    for name, job in data["jobs"].items():
        by_round = whole_runs_page.rounds(data, name)
        hand = whole_runs_page.better_by_hand(by_round)
        after, whole = of_whole_processes(name, AFTER), of_whole_processes(name, WHOLE)
        command = f"benchmarks.whole_runs --gpus 4 --budget {_budget(session)}"
        yield MeasuredRow(
            HOST, job_of(job["script"], job["options"]), "4 H200", "`auto`", plain_step(by_round), after,
            f"chunk {hand}", Ratio.of(whole_runs_page.by_means(by_round, (PLAIN, AGAIN), hand)),
            Ratio.of(whole_runs_page.by_means(by_round, (hand,), SEARCH, AFTER)),
            f"whole run with it: {whole.text}",
            _source(command, session["commit"], session["nccl_230"], HOST_SEARCH),
            "40 s to search; speed-up after it", name == "fsdp-16384",
        )  # fmt: skip


def first_slice(part: int) -> tuple[Ratio, float]:
    """Chunks of 512 KiB in a part of the first runs, and plain NCCL's milliseconds a step there."""
    told = raw(FIRST_SLICE)["parts"][part]["chunk"]["log"]["told"]
    (end,) = (event for event in told if event["event"] == "outcome")
    base = next(event for event in told if event["event"] == "move" and event["purpose"] == "baseline")
    return Ratio(end["speedup"], end["speedup_low"], end["speedup_high"]), base["z"] / 1e6


def _first_slice() -> MeasuredRow:
    by_hand, plain_ms = first_slice(FIRST_4096)
    commit = raw(FIRST_SLICE)["parts"][FIRST_4096]["versions"]["commit"]
    source = f"{_source('first_slice --tokens 4096', commit, '2.30.7', FIRST_SLICE)}; the script was removed"
    return MeasuredRow(HOST, "FSDP, 3 layers, 4,096 tokens", "4 H200", NONE, plain_ms, "not run", "chunk 512 KiB",
                       by_hand, None, NONE, source)  # fmt: skip


def _started(
    regime: Regime, job: str, name: str, ours: Ratio, hand: str, by_hand: Ratio | None, over: Ratio | None = None
) -> MeasuredRow:
    """What ``lagom tune`` found."""
    plain = [run["value"] for run in start_results.runs(name) if start_results.group_of(run) == start_results.PLAIN]
    hardware, data = start_results.measured_on(name)
    command = re.sub(r"^/\S+/benchmarks/nodes_start\.py", "benchmarks/nodes_start.py", data["regimes"][name]["command"])
    command = re.sub(r"--out \S+", "--out OUT", command)
    (limit,) = re.findall(r"--(?:budget|search) \S+", command)
    card = " ".join(re.findall(r"^(\d+) x NVIDIA (\S+)", data["hardware"])[0])
    return MeasuredRow(
        regime, job, card, "`lagom tune`", statistics.fmean(plain), ours, hand, by_hand,
        over, f"{start_results.minutes(name)} minutes (`{limit.replace('--search', '--budget')}`)",
        _source(command, data["commit"], data["versions"]["nccl"], f"start_settings_{hardware}_202611"),
        in_readme=name in (start_results.TWO_LAUNCHERS[0], start_results.TWO_WINDOWS, start_results.ALLTOALL),
    )  # fmt: skip


def _alltoall() -> MeasuredRow:
    name, tokens = start_results.ALLTOALL, 4096
    job = f"EP, OLMoE-1B-7B, 1 layer, {tokens:,} tokens, AlltoAll; by hand in rounds of its own"
    ours, hand = start_results.confirmed(name), start_results.channels_by_hand(tokens)
    return _started(HOST, job, name, Ratio.of(ours), "32 P2P channels", Ratio.of(hand))


def _sockets() -> Iterator[MeasuredRow]:
    hand = "4 × 4 sockets"
    for name, job in (
        (start_results.TWO_SOCKETS, "FSDP, 2 layers, 4,096 tokens"),
        (start_results.TWO_SOCKETS_LONG, "FSDP, 1 layer, 32,768 tokens"),
    ):
        ours, by_hand = Ratio.of(start_results.confirmed(name)), Ratio.of(start_results.by_hand(name))
        yield _started(SOCKETS, job, name, ours, hand, by_hand, Ratio.of(start_results.over_by_hand(name)))
    jobs = ("FSDP, 2 layers, 4,096 tokens", "DDP, 2 layers, 2,048 tokens")
    for name, job in zip(start_results.TWO_LAUNCHERS, jobs, strict=True):
        ours, by_hand, over = (
            Ratio.of(start_results.next_starts(name, base, arm))
            for base, arm in (("plain", "found"), ("plain", "by hand"), ("by hand", "found"))
        )
        plain = statistics.fmean(start_results.times_of_next_starts(name)["plain"])
        text = f"{job}, a launcher on each node; the next starts"
        yield _started(SOCKETS, text, name, ours, hand, by_hand, over)._replace(plain_ms=plain)


def _costs() -> Iterator[MeasuredRow]:
    for file in COSTS:
        data = raw(file)
        for name, job in data["jobs"].items():
            session = _last_session(data, name)
            by_round = whole_runs_page.rounds(data, name)
            release = session.get("nccl_230" if job["nccl"] == "2.30" else "nccl")
            command = f"benchmarks.whole_runs --gpus {session['gpus']} --jobs {name}"
            searched = all(_has_searched(one[SEARCH]) for one in by_round)
            yield MeasuredRow(
                COST, job_of(job["script"], job["options"]), f"{session['gpus']} H200", "`auto`", plain_step(by_round),
                of_whole_processes(name, WHOLE, file), NONE, None, None, "in the figure",
                _source(command, session["commit"], release, file),
                f"steps 6 to 120, {'search included' if searched else 'before the search'}",
                searched and len(by_round) >= COST_ROUNDS,
            )  # fmt: skip


def _last_session(data: dict[str, Any], job: str) -> dict[str, Any]:
    """That of the job's processes: one that measures a job anew replaces the earlier ones."""
    named = (
        one
        for one in reversed(data["sessions"])
        if job in one["arguments"][one["arguments"].index("--jobs") + 1].split(",")
    )
    return next(named)


def _has_searched(process: dict[str, Any]) -> bool:
    """Whether anything was measured for the search before the job ended."""
    return any(event["event"] == "move" for event in process["log"])


# -- tables


def winner(over: Ratio) -> str:
    """Who is faster, by the interval of the ratio of Lagom over by hand."""
    if over.low > 1 - EQUAL and over.high < 1 + EQUAL:
        return "equal"
    return "Lagom faster" if over.low > 1.0 else "by hand faster" if over.high < 1.0 else "not resolved"


def _cells(row: MeasuredRow) -> list[str]:
    """How, Lagom, by hand, Lagom over by hand, cost: what both tables have."""
    how = f"{row.how} ({row.note})" if row.note else row.how
    ours = row.ours if isinstance(row.ours, str) else row.ours.text
    hand = row.hand if row.by_hand is None else f"{row.hand}: {row.by_hand.text}"
    over = NONE if row.over is None else f"{row.over.text}: {winner(row.over)}"
    if isinstance(row.ours, str):  # what is compared with the setting by hand is plain NCCL
        over = over.replace("Lagom", "plain NCCL")
    return [how, ours, hand, over, row.cost]


HEAD = ("strategy", "Lagom", "by hand", "Lagom over by hand", "lost or time in the search")


def _table(head: tuple[str, ...], lines: list[list[str]]) -> str:
    return "\n".join(["| " + " | ".join(one) + " |" for one in (head, ["---"] * len(head), *lines)])


def table() -> str:
    """For README.md."""
    lines = [[row.regime.short, f"{row.job}; {row.gpus}", *_cells(row)] for row in rows() if row.in_readme]
    return _table(("regime", "job; GPUs", *HEAD), lines)


def regimes() -> str:
    """For docs/measured.md: a table for each regime."""
    head, every = ("job", "GPUs", "plain NCCL, a step", *HEAD, "command, commit"), list(rows())
    parts = []
    for regime in REGIMES:
        found = [row for row in every if row.regime == regime]
        lines = [[row.job, row.gpus, f"{row.plain_ms:.1f} ms", *_cells(row), row.source] for row in found]
        parts.append(f"### {regime.title}\n\n{_table(head, lines)}")
    return "\n\n".join(parts)
