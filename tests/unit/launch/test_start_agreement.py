# SPDX-License-Identifier: Apache-2.0
"""What launchers of several nodes vote for, whom they meet, and what they say about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lagom.config_cache import Machine
from lagom.doctor import nodes
from lagom.errors import UsageError
from lagom.launch import cached_config, start_agreement
from lagom.launch.cached_config import NO_CACHE, NOT_TOLD, CacheUse, Meeting, find_cached, keep_config
from lagom.launch.job_plan import JobOptions
from lagom.launch.launchers import names_of_job
from lagom.launch.start_agreement import Agreed, agree, plan_start, told_meeting
from lagom.launch.start_variables import choose_start
from lagom.nodes.exchange import Begin, ExchangeError, Place
from tests.unit.nodes.launchers import LIFE, MemoryExchange, at_once

TORCHRUN = ("torchrun", "--nnodes", "2", "--rdzv-endpoint", "h:29400", "train.py")
SLURM = {"SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "0"}
EACH_RANK, EACH_NODE = SLURM | {"SLURM_STEP_NUM_TASKS": "16"}, SLURM | {"SLURM_STEP_NUM_TASKS": "2"}
FOUND = 'lagom-config 1\n#: {{"of": "{node}"}}\nenvironment NCCL_SOCKET_NTHREADS "{value}"\nfingerprint ranks 4\n'
NONE = "start settings not set: "


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(cached_config, "_machine", lambda environ: Machine())
    monkeypatch.setattr(nodes, "find_nccl", lambda environ: 0)


def environ_of(node: str, **more: str) -> dict[str, str]:
    return {"LAGOM_CACHE": str(Path(f"cache-{node}").absolute()), "NCCL_HOSTID": node, **more}


def keep(
    node: str, value: str = "4", nodes: int = 2, command: Sequence[str] = TORCHRUN, exchange: str = "", **more: str
) -> str:
    """As `lagom tune` leaves it on a node: with comments of its own."""
    file = Path(f"found-{node}.lagom")
    file.write_text(FOUND.format(node=node, value=value))
    where = exchange or str(Path("meet").absolute())
    return keep_config(command, file, environ_of(node, **more), "lagom tune", nodes=nodes, exchange=where).text


def find(node: str, command: Sequence[str] = TORCHRUN, told: Meeting = NOT_TOLD, **more: str) -> CacheUse:
    return find_cached(command, environ_of(node, **more), may_use=True, told=told)


def votes(*nodes: str, wait: float = 120.0, told: Meeting = NOT_TOLD, **user: Mapping[str, str]) -> dict[str, Agreed]:
    """What each node's launcher comes to; ``user``: what was exported there after the config was found."""

    def one(node: str) -> Agreed:
        use = find(node, told=told)
        environ = environ_of(node, **user.get(node, {}))
        config = None if use.config is None else use.config.path
        return agree(use, choose_start("", None, config, environ, [*TORCHRUN]), environ, wait, LIFE)

    found = at_once([lambda node=node: one(node) for node in nodes])  # type: ignore[misc]
    return {node: one.result() for node, one in zip(nodes, found, strict=True)}


def texts(found: Mapping[str, Agreed]) -> set[str]:
    return {one.text for one in found.values()}


def test_configs_that_decide_the_same_are_used_by_all_at_every_start() -> None:
    assert keep("a") == "the config is kept: the next start of this job on 2 nodes replays it where all of them have it"
    keep("b")
    for _ in range(2):
        found = votes("a", "b")
        assert all(one.is_set and set(one.nodes) == {"a", "b"} for one in found.values())
        (text,) = texts(found)
        assert text.startswith("start settings agreed by 2 nodes (")
        assert text.endswith("): NCCL_SOCKET_NTHREADS=4")
    found = votes("a", "b", b={"NCCL_SOCKET_NTHREADS": "4"})
    assert all(one.is_set for one in found.values()), "set by the user already, and the same"


@pytest.mark.parametrize("how", ["other value", "other by its user", "none", "refused"])
def test_where_one_would_do_otherwise_no_node_uses_its_own(how: str) -> None:
    keep("a")
    told = Meeting(2, str(Path("meet").absolute()))
    user = {"b": {"NCCL_SOCKET_NTHREADS": "8"}} if how == "other by its user" else {}
    if how != "none":
        keep("b", "8" if how == "other value" else "4")
    if how == "refused":
        other_ranks = cached_config.ConfigRefusal("ranks", "4", "8")
        use = find("b")
        assert use.config is not None
        cached_config.ConfigCache(Path("cache-b").absolute()).refuse(use.config, other_ranks)
        assert find("b").config is None
        told = NOT_TOLD  # the refused one still says where they meet
    found = votes("a", "b", told=told, **user)
    assert not any(one.is_set for one in found.values())
    (text,) = texts(found)
    if how in ("none", "refused"):
        assert text == f"{NONE}node b has no saved config to use (lagom tune writes it)"
    else:
        what = "the saved config, NCCL_SOCKET_NTHREADS" if how == "other value" else "NCCL_SOCKET_NTHREADS"
        assert text in {f"{NONE}not the same on all nodes: {what} of {names}" for names in ("a and b", "b and a")}


def test_all_of_many_nodes_hear_who_has_none() -> None:
    for node in "abc":
        keep(node, nodes=5)
    found = votes(*"abcde", told=Meeting(5, str(Path("meet").absolute())))
    (text,) = texts(found)
    assert text in {
        f"{NONE}nodes {names} have no saved config to use (lagom tune writes it)" for names in ("d, e", "e, d")
    }
    none = votes("d", "e", told=Meeting(2, str(Path("other").absolute())))
    assert texts(none) < {
        f"{NONE}none of 2 nodes ({n}) has a saved config to use (lagom tune writes it)" for n in ("d, e", "e, d")
    }


def test_a_node_that_does_not_come_is_waited_for_and_then_no_other_uses_its_own() -> None:
    keep("a")
    why = "a node that runs already, or whose variables are others, comes to no vote"
    assert votes("a", wait=0.0) == {"a": Agreed(False, ("a",), f"{NONE}1 of 2 nodes came within 0 s (a); {why}")}


def test_of_a_folder_with_foreign_records_it_is_said_what_to_do() -> None:
    keep("a")
    begun = "meet/starts"
    assert votes("a", wait=0.0)["a"].nodes == ("a",)
    (seat,) = Path(begun).glob("*/1/seat/0")
    seat.write_text("[]")
    text = votes("a", wait=0.0)["a"].text
    assert text.startswith(f"{NONE}starts/")
    assert text.endswith("; remove starts there, or name another place with LAGOM_EXCHANGE")


def test_who_gives_a_config_by_hand_on_one_of_several_nodes_is_told_to_give_it_on_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep("a")
    for name in ("LAGOM_CACHE", "NCCL_SOCKET_NTHREADS"):
        monkeypatch.delenv(name, raising=False)
    options = JobOptions(config=Path("found-a.lagom"))
    remark = "nobody is asked about --config: give the same one on all 2 nodes, or on none"
    for command, is_told in ((TORCHRUN, True), (("torchrun", "train.py"), False)):
        plan, _ = plan_start([*command], options, NO_CACHE, "", None)
        assert plan.variables["NCCL_SOCKET_NTHREADS"] == "4"
        assert (remark in plan.remarks) == is_told


@pytest.mark.parametrize("there", ["nobody", "another store"])
def test_a_remembered_place_of_other_nodes_is_not_waited_for_as_long_as_nodes_are(
    there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an old allocation. It is one of a hundred nodes, or serves another job by now."""
    where = "old.invalid:29501"
    keep("a", exchange=where)
    monkeypatch.setattr(start_agreement, "REMEMBERED_SECONDS", 0.1)
    if there == "another store":

        def another(where: str, space: str, patience: float) -> MemoryExchange:
            exchange = MemoryExchange()
            exchange.may_coordinate, exchange.patience = False, patience
            return exchange

        monkeypatch.setattr(start_agreement, "open_exchange", another)
    found = votes("a", wait=600.0)["a"]  # which is more than a test may take
    assert not found.is_set
    assert found.text.startswith(NONE)
    assert found.text.endswith("name one of this job's with --rdzv-endpoint or LAGOM_EXCHANGE")
    told: list[float] = []
    monkeypatch.setattr(
        start_agreement, "open_exchange", lambda where, space, patience: told.append(patience) or Gone()
    )
    votes("a", wait=50.0, told=Meeting(2, where))
    assert told == [50.0], "a place that is named for this start"
    for address in ("older.invalid", "old.invalid"):
        votes("a", wait=50.0, a={"MASTER_ADDR": address})
    assert told[1:] == [0.1, 50.0], "the launcher names its host"


class Gone(MemoryExchange):
    def _get(self, key: str) -> bytes | None:
        raise ExchangeError("memory is gone; use another")


def test_two_jobs_of_one_command_at_once_never_meet() -> None:
    first = names_of_job(TORCHRUN, {"SLURM_JOB_ID": "7", "NCCL_HOSTID": "a"})
    assert first == names_of_job(TORCHRUN, {"SLURM_JOB_ID": "7", "NCCL_HOSTID": "b", "SLURM_NODEID": "1"})
    assert first == names_of_job((*TORCHRUN[:3], "--node-rank", "1", *TORCHRUN[3:]), {"SLURM_JOB_ID": "7"})
    assert first != names_of_job(TORCHRUN, {"SLURM_JOB_ID": "8"})
    assert first != names_of_job((*TORCHRUN[:3], "--rdzv-endpoint=i:1", "train.py"), {"SLURM_JOB_ID": "7"})


def test_who_may_be_counted_and_cannot_hear_the_outcome_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    class Goes(MemoryExchange):
        def _get(self, key: str) -> bytes | None:
            if self.kept:
                raise ExchangeError("memory is gone; use another")
            return None

    keep("a")
    monkeypatch.setattr(start_agreement, "open_exchange", lambda *where: Goes())
    with pytest.raises(UsageError, match=r"^the command is not started, .*: memory is gone; start it anew"):
        votes("a")


def test_what_other_nodes_write_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vote that is all alike and a decision, by whoever can write there: this node's own settings, or none."""

    class Forged(MemoryExchange):
        def _put_once(self, key: str, data: bytes) -> bytes:
            found = super()._put_once(key, data)
            if key.endswith("/seat/0"):
                other = Place.model_validate_json(found).model_copy(update={"token": "bb", "node": "b"})
                self.kept[key[:-1] + "1"] = other.model_dump_json().encode()
                begin = Begin(agreed=True, why="agreed")
                self.kept[key.replace("seat/0", "begin")] = begin.model_dump_json().encode()
            return found

    monkeypatch.setattr(start_agreement, "open_exchange", lambda *where: Forged())
    told = Meeting(2, "/anywhere")
    assert not votes("a", told=told)["a"].is_set
    keep("a")
    assert votes("a")["a"].text.endswith("(a, b): NCCL_SOCKET_NTHREADS=4")


def test_a_config_of_one_node_is_only_named_and_that_of_another_number_too() -> None:
    keep("a", nodes=1)
    use = find("a")
    assert (use.config, use.meeting) == (None, None)
    assert "torchrun --nnodes 2 starts the ranks of one node of 2" in use.remarks[0]
    use = find("a", told=Meeting(2, "/meet"))
    assert (use.config, use.meeting) == (None, Meeting(2, "/meet"))
    assert "nothing is set: it was found on 1 node, and every rank" in use.remarks[0]
    keep("a", nodes=2)
    use = find("a", told=Meeting(4))
    assert (use.config, use.meeting) == (None, Meeting(4, str(Path("meet").absolute()), is_remembered=True))
    assert "it was found on 2 nodes" in use.remarks[0]


def test_a_config_of_several_nodes_is_never_used_without_the_others() -> None:
    """Also where the command looks as if it started every rank: a script of the user hides torchrun."""
    keep("a", command=["./train.sh"])
    use = find("a", ["./train.sh"])
    assert use.config is not None
    assert use.meeting is not None


@pytest.mark.parametrize(("environ", "may"), [(EACH_NODE, True), (EACH_RANK, False)])
def test_under_srun_one_launcher_a_node_votes_and_one_a_rank_does_not(environ: dict[str, str], may: bool) -> None:
    keep("a", **environ)
    use = find("a", **environ)
    assert ((use.config is not None), (use.meeting is not None)) == (may, may)
    told = find("a", told=Meeting(2, "/meet"), **environ)
    assert told.meeting == Meeting(2, "/meet"), "so that other nodes need not wait"
    assert (told.config is not None) == may
    assert find("a", told=Meeting(2, "/meet"), **environ | {"SLURM_LOCALID": "1"}).meeting is None


def test_what_options_and_settings_tell() -> None:
    folder = {"LAGOM_EXCHANGE": "/shared"}
    assert told_meeting(0, "", TORCHRUN, {}) == NOT_TOLD
    assert told_meeting(0, "", TORCHRUN, folder) == Meeting(2, "/shared")
    assert told_meeting(3, "h:1", TORCHRUN, folder) == Meeting(3, "h:1")
    assert told_meeting(0, "", ["torchrun", "train.py"], folder).with_entry(None) is None
    assert told_meeting(0, "", ["srun", "-N2", "train.py"], folder).with_entry(None) is None, "it starts all of them"
    with pytest.raises(UsageError, match="give their number with --nnodes"):
        told_meeting(0, "h:1", ["train.py"], {})
    with pytest.raises(UsageError, match="is not understood"):
        told_meeting(2, "h", TORCHRUN, {})
    (remark,) = find("a", told=Meeting(2)).remarks
    assert remark == "nothing is agreed with other nodes: give --rdzv-endpoint HOST:PORT, or LAGOM_EXCHANGE"


def test_a_relative_folder_is_no_meeting_place() -> None:
    found = votes("a", told=Meeting(2, "shared"))["a"]
    assert found.text == f"{NONE}shared is no absolute path"
