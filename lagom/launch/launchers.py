# SPDX-License-Identifier: Apache-2.0
"""What a job's command says about its ranks: which of them it starts, and whether this environment reaches them.

Start settings reach the ranks that inherit the environment of this process, and NCCL needs most of them to be the same
on every rank without checking that. So in doubt the answer is no: then a cached config is only named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from lagom.environment import count_nodes_told, count_ranks_told
from lagom.errors import UsageError
from lagom.launch.command_reader import CommandPart, CommandReader, is_replaced
from lagom.launch.job_plan import local_rank
from lagom.launch.launcher_table import (
    NAMING_OPTIONS,
    NAMING_VARIABLES,
    NODE_VARIABLES,
    Launcher,
    Starts,
)

UNKNOWN = 0  # number of nodes
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-(\w*))?\})")
#: Of a script that starts ranks itself, or tells its framework: PyTorch Lightning's, also by Hydra.
SCRIPT_NODES = re.compile(r"(?:--|\+)?[\w.]*\.(?:num_nodes|nnodes)")
BARE_SCRIPT_NODES = re.compile(r"--(?:num[_-](?:nodes|machines)|nnodes)")
THIS_HOST = {"localhost", "127.0.0.1", "::1", ""}


class Ranks(IntEnum):
    """Which ranks a command starts; where several apply, the largest."""

    EVERY = 0  # all of the job, with the environment of this process
    UNCLEAR = 1
    AWAY = 2  # by a launcher that may start those of all nodes elsewhere
    SOME = 3  # those of one node of several


@dataclass(frozen=True, slots=True)
class Started:
    """What a command starts. ``nodes``: as far as it says, 0 = that cannot be read; ``why``: a clause, where it is not
    every rank; ``lost``: a clause, where the environment of this process does not reach the ranks by itself."""

    ranks: Ranks = Ranks.EVERY
    nodes: int = 1
    why: str = ""
    lost: str = ""


def read_command(command: Sequence[str], environ: Mapping[str, str]) -> Started:
    """Which ranks the command starts, in that environment."""
    if local_rank(environ) is not None:
        return Started(Ranks.SOME, count_nodes_told(environ), "a launcher around it starts one process for each rank")
    reader = CommandReader(opens_scripts=True)
    reader.read(list(command))
    variables = {**environ, **reader.variables}
    found = [_judge(chain, variables) for chain in reader.chains]
    return _worst([*found, *_judge_variables(variables)])


def starts_every_rank(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether this launcher is sure to start all ranks of the job, with this environment."""
    started = read_command(command, environ)
    return started.ranks is Ranks.EVERY and not started.lost


def spans_nodes(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether the job has several nodes, or may have by a number that cannot be read."""
    inside = {name: value for name, value in environ.items() if name != "WORLD_SIZE"}  # of ranks, not of nodes
    return read_command(command, inside).nodes != 1


def is_one_of_its_node(environ: Mapping[str, str]) -> bool:
    """Whether no other `lagom run` of this job is on this node."""
    return local_rank(environ) is None or count_ranks_told(environ) == count_nodes_told(environ)


def starts_one_node(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Of how many nodes the command starts all ranks of one; 0 where that is another number, or not sure."""
    started = read_command(command, environ)
    return started.nodes if started.ranks is Ranks.SOME and is_one_of_its_node(environ) else 0


def check_node_count(command: Sequence[str], nnodes: int, environ: Mapping[str, str]) -> None:
    """Raises :class:`UsageError` for a command that is to be started on each of ``nnodes`` nodes, if these are several,
    and says another number itself. One that may start a launcher unseen, as a script, says none."""
    started = read_command(command, environ)
    said = started.why if started.nodes > 1 and started.nodes != nnodes and started.ranks is not Ranks.UNCLEAR else ""
    if nnodes > 1 and (said := said or _only_one_node(command, environ)):
        raise UsageError(f"{said}, and --nnodes {nnodes} is another number; make both the same.")


def _only_one_node(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """A clause, where the command surely starts all ranks of a job on this node alone, whatever starts the command."""
    reader = CommandReader()
    reader.read(list(command))
    variables = {**environ, **reader.variables}
    started = _worst([_judge(chain, variables) for chain in reader.chains])
    if started.ranks is not Ranks.EVERY or started.lost:  # what is set in a container may say another number
        return ""
    return next((said for chain in reader.chains if (said := _one_node_of(chain, variables))), "")


def _one_node_of(chain: Sequence[CommandPart], variables: Mapping[str, str]) -> str:
    """Of a chain whose number of nodes is read as one. A wrapper that is not in the table, and words that a shell
    replaces, may add to the launcher's options; ranks of one that takes no number may find each other otherwise."""
    for part in chain:
        launcher = part.launcher
        if not launcher.names or part.is_doubtful or "$" in "".join(part.rest[:1]):
            return ""
        if launcher.starts is not Starts.HERE and launcher.nodes:
            is_said = part.last(launcher.nodes) or any(variables.get(name) for name in launcher.nodes_in)
            said = _node_count(part, variables)[0] if is_said else f"{part.name} without {launcher.nodes[0]}"
            return f"{said} starts all ranks of a job on one node"
    return ""


def names_of_job(command: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The words that stay, and those by which two starts of them at the same time are two jobs: the same on all nodes
    of one."""
    reader = CommandReader()
    reader.read(list(command))
    options = [f"{name}={value}" for part in reader.parts for name, value in part.options if name in NAMING_OPTIONS]
    variables = {**environ, **reader.variables}
    options += [f"{name}={variables[name]}" for name in NAMING_VARIABLES if variables.get(name)]
    return [*words_that_stay(command), *options]


def words_that_stay(command: Sequence[str]) -> list[str]:
    """The words that are the same at each start of a job: without ports, addresses, rendezvous ids and log folders of
    the launchers."""
    return CommandReader(fills_in=False).read(list(command))


def log_folders(command: Sequence[str]) -> list[Path]:
    """Folders in which a launcher keeps what the ranks print."""
    reader = CommandReader()
    reader.read(list(command))
    return [Path(value) for part in reader.parts for name, value in part.options if name in part.launcher.logs]


# -- what the words mean


def _judge(chain: Sequence[CommandPart], variables: Mapping[str, str]) -> Started:
    """``variables``: of the environment and of the command."""
    found = [Started()]
    is_everywhere = False  # a launcher in front starts what follows on every node
    for part in chain:
        found.append(_judge_environment(part))
        found.append(_judge_nodes(part, variables, is_everywhere=is_everywhere))
        if is_replaced(part):
            said = " ".join([part.name, *part.rest[:1]])
            found.append(Started(Ranks.UNCLEAR, UNKNOWN, f"{said} has a word that only a shell knows"))
        is_everywhere |= part.launcher.starts in (Starts.AWAY, Starts.HOSTS)
    has_launcher = any(part.launcher.starts is not Starts.HERE for part in chain)
    found.append(_judge_script(chain[-1].rest, has_launcher=has_launcher))
    return _worst(found)


def _worst(found: Sequence[Started]) -> Started:
    """Where the fewest ranks are surely started, the first number of nodes that is not one, and what loses the
    environment, whichever of them that is."""
    worst = max(found, key=lambda one: one.ranks, default=Started())
    nodes = worst.nodes if worst.nodes != 1 else next((one.nodes for one in found if one.nodes != 1), 1)
    return replace(worst, nodes=nodes, lost=next((one.lost for one in found if one.lost), ""))


def _judge_environment(part: CommandPart) -> Started:
    launcher, names = part.launcher, {name for name, _ in part.options}
    if hit := names & set(launcher.clearing):
        return Started(lost=f"{part.name} {min(hit)} does not pass this environment")
    if listed := part.last(launcher.listing):
        lost = f"{part.name} {'='.join(listed)} passes nothing else of this environment"
        return Started() if "ALL" in listed[1].split(",") else Started(lost=lost)
    if launcher.passes or names & set(launcher.passing):
        return Started()
    options = " or ".join((*launcher.passing, *launcher.variables))
    only = f", only what is asked for by {options}" if options else ""
    return Started(lost=f"{part.name} does not pass this environment{only}")


def _judge_nodes(part: CommandPart, variables: Mapping[str, str], *, is_everywhere: bool) -> Started:
    launcher = part.launcher
    said, count = _node_count(part, variables)
    if launcher.starts is Starts.AWAY:
        return Started(Ranks.AWAY, count, f"{part.name} may start ranks elsewhere, in another environment")
    if count == UNKNOWN:
        return Started(Ranks.UNCLEAR, UNKNOWN, f"{said} does not say whether there is one node")
    if count > 1:
        is_node = launcher.starts is Starts.NODE or part.last(launcher.each_node) is not None
        if is_node and not is_everywhere:
            return Started(Ranks.SOME, count, f"{said} starts the ranks of one node of {count}")
        return Started(Ranks.AWAY, count, f"{said} starts ranks on other nodes")
    if said := _other_hosts(part, variables):
        return Started(Ranks.AWAY, UNKNOWN, f"{said} may start ranks on other nodes")
    if part.is_doubtful and any(_names_nodes(launcher, word) for word in part.rest):
        return Started(Ranks.UNCLEAR, UNKNOWN, f"{part.name} has an option that Lagom does not know")
    return Started()


def _names_nodes(launcher: Launcher, word: str) -> bool:
    name = word.partition("=")[0].replace("_", "-")
    return name in (*launcher.nodes, *launcher.hosts, *launcher.host_files)


def _node_count(part: CommandPart, variables: Mapping[str, str]) -> tuple[str, int]:
    """(where it is said, number of nodes): by an option, else a variable, else a file."""
    launcher = part.launcher
    if option := part.last(launcher.nodes):
        return f"{part.name} {option[0]} {option[1]}", count_nodes(option[1], variables)
    if option := part.last(launcher.ranks):  # of how many nodes that is, no option says
        return f"{part.name} {option[0]} {option[1]}", 1 if option[1] == "1" else UNKNOWN
    for name in launcher.nodes_in:
        if variables.get(name):
            return f"{part.name} with {name}={variables[name]}", count_nodes(variables[name], variables)
    if launcher.nodes_file:
        return f"{part.name}'s config file", _count_in_file(part.last((launcher.nodes_file,)), variables)
    return part.name, 1


def count_nodes(text: str, variables: Mapping[str, str]) -> int:
    """Of ``2``, ``2:4``, ``$NNODES``, ``["a", "b"]``; 0 where it may be one or several."""

    def value(found: re.Match[str]) -> str:
        return variables.get(found[1] or found[2], "") or found[3] or found[0]

    text = VARIABLE.sub(value, text)
    if text.startswith("["):
        return text.count(",") + 1
    least, _, most = text.partition(":")
    counts = [int(each) if each.isdecimal() and each.isascii() else UNKNOWN for each in (least, most or least)]
    return counts[0] if counts[0] > 1 or counts == [1, 1] else UNKNOWN


def _count_in_file(option: tuple[str, str] | None, variables: Mapping[str, str]) -> int:
    """Of accelerate's config file, the user's default one if none is named."""
    caches = variables.get("HF_HOME") or Path(variables.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    file = Path(option[1]) if option else Path(caches) / "accelerate" / "default_config.yaml"
    try:
        found = re.search(r"^num_machines:\s*(\d+)", file.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return UNKNOWN if option else 1
    return int(found[1]) if found else 1


def _other_hosts(part: CommandPart, variables: Mapping[str, str]) -> str:
    """What names them; empty if nothing does."""
    launcher = part.launcher
    for name, value in part.options:
        if name in launcher.host_files or (name in launcher.hosts and not _hosts_in(value) <= THIS_HOST):
            return f"{part.name} {name} {value}"
    if launcher.host_file and Path(launcher.host_file).exists() and not part.last(launcher.hosts):
        return f"{part.name} with {launcher.host_file}"
    if launcher.long_dash and ":" in part.rest:  # mpirun -np 1 a : -np 1 -H node b
        return f"{part.name} with several commands"
    return next((f"{part.name} with {name}" for name in launcher.host_variables if variables.get(name)), "")


def _hosts_in(value: str) -> set[str]:
    """Of ``a:8,b:8``, and of deepspeed's ``a:0,1@b:0``, where a number alone is a GPU."""
    return {host.partition(":")[0] for host in re.split("[,@]", value) if not host.isdecimal()}


def _judge_script(words: Sequence[str], *, has_launcher: bool) -> Started:
    """What a script is told, which may start ranks itself. ``has_launcher``: one has started it, so that what is named
    like a number of nodes may be that of a graph."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        value = value if equals else next(iter(words[place + 1 : place + 2]), "")
        is_told = SCRIPT_NODES.fullmatch(name) or (not has_launcher and BARE_SCRIPT_NODES.fullmatch(name))
        if is_told and (count := count_nodes(value, {})) != 1:
            return Started(Ranks.UNCLEAR, count, f"the job is told {name} {value}")
    return Started()


def _judge_variables(variables: Mapping[str, str]) -> Iterator[Started]:
    for name in NODE_VARIABLES:
        if variables.get(name) and (count := count_nodes(variables[name], variables)) != 1:
            yield Started(Ranks.UNCLEAR, count, f"{name}={variables[name]} may be a job of several nodes")
