"""Rules of other tuners in, rules of ours out. README.md says what means what; one file a format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lagom.errors import UsageError
from lagom.exchange import nccl_csv, ncclx, ncclx_csv, ncclx_json
from lagom.exchange.claims import Claims
from lagom.exchange.order import cut, each_function, fallbacks, same_place, settle
from lagom.exchange.result import Entry, Line, Reading, Taken, Written
from lagom.exchange.topology import Topology
from lagom.exchange.words import NotSaid
from lagom.wire.plan import Rule

__all__ = ["FORMATS", "Entry", "Taken", "Topology", "Written", "detect", "export_rules", "import_rules"]


@dataclass(frozen=True, slots=True)
class Format:
    """One foreign format."""

    name: str
    text: str
    read: Callable[[str, Topology | None], Reading]
    write: Callable[[list[Line]], str]
    check: Callable[[Line, list[Line]], None]  # raises NotSaid
    remarks: tuple[str, ...] = ()  # of every file written


FORMATS = {
    one.name: one
    for one in (
        Format(
            "nccl",
            "NVIDIA's example tuner (NCCL_TUNER_CONFIG_FILE), CSV",
            nccl_csv.read,
            nccl_csv.write,
            nccl_csv.check,
            (nccl_csv.MISSES,),
        ),
        Format("ncclx-csv", "NCCLX (NCCLX_TUNER_CONFIG_FILE), CSV", ncclx_csv.read, ncclx_csv.write, ncclx.check),
        Format("ncclx-json", "NCCLX (NCCLX_TUNER_CONFIG_FILE), JSON", ncclx_json.read, ncclx_json.write, ncclx.check),
    )
}


def detect(text: str) -> Format:
    """The format of a file, by its first line that says anything; raises :class:`UsageError` if it is none."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    if first.startswith(("{", "[")):
        return FORMATS["ncclx-json"]
    fields = ncclx_csv.split(first)
    if len(fields) < ncclx_csv.REQUIRED:
        raise UsageError(f"this is no rule file that Lagom knows; name its format: {', '.join(FORMATS)}.")
    # Ours in third place is a size in one and an algorithm in the other; so is each one's column header.
    size_comes_third = fields[2].lstrip("+-").isdigit() or fields[2] == "max_bytes"
    return FORMATS["nccl" if size_comes_third else "ncclx-csv"]


def import_rules(text: str, form: Format, topology: Topology | None = None) -> Taken:
    """A file of the other format as rules of ours for communicators of one size (None: of any)."""
    return settle(form.read(text, topology))


def export_rules(entries: Sequence[Entry], form: Format) -> Written:
    """Rules of ours as a file of the other format, in their order."""
    lines: list[Line] = []
    refused: list[Entry] = []
    for entry in entries:
        before = [e.rule for e in refused if e.rule is not None and same_place(e.only, entry.only)]
        try:
            lines += _lines(entry, before, form, lines)
        except NotSaid as error:
            refused.append(replace(entry, why=str(error)))
    taken = [Entry(line.where, line.rule, only=line.only) for line in lines]
    remarks = (*form.remarks, *(_turned(remark) for remark in fallbacks(taken)))
    return Written(form.write(lines), len(lines), tuple(refused), remarks)


def _lines(entry: Entry, before: list[Rule], form: Format, lines: list[Line]) -> list[Line]:
    """What stands for one rule; raises :class:`NotSaid` if any part of it cannot be said."""
    assert entry.rule is not None
    if entry.is_refused:
        raise NotSaid(entry.why)
    _complete(entry.rule)
    parts = [one for part in cut(entry.rule, Claims(before)) for one in each_function(part)]
    mine: list[Line] = []
    for part in parts:
        line = Line(entry.where, part, entry.only)
        form.check(line, [*lines, *mine])
        mine.append(line)
    return mine


def _complete(rule: Rule) -> None:
    config = rule.config
    if config.is_stock:
        raise NotSaid("it leaves everything to NCCL, and the format has no such line")
    if config.threads is not None:
        raise NotSaid("threads (nt) can be set by no other tuner; leave them out with --without nt")
    if config.algorithm is None or config.protocol is None:
        raise NotSaid(
            "it leaves algorithm or protocol to NCCL, and the format must name both; say which with --fill ALGO/PROTO"
        )


def _turned(remark: str) -> str:
    """The remark about second choices, seen from the other side."""
    return remark.replace("the other tuner goes on to", "the tuner that reads this goes on to")
