# SPDX-License-Identifier: Apache-2.0
"""The words of `lagom bench --arms`."""

from __future__ import annotations

from pathlib import Path

import pytest

from lagom.bench.arm_words import BadArm, parse_arms, split_words
from lagom.errors import LagomError
from lagom.experiment.arm import NO_CONTROLLER, Kind


def test_rules_and_variables_keep_their_commas() -> None:
    text = "stock,set=allgather:>=1M:nc=4,chunk=512K;any:any:nt=256,off,env=A=1,B=2,own:static=4,static"
    assert split_words(text) == [
        "stock", "set=allgather:>=1M:nc=4,chunk=512K;any:any:nt=256", "off", "env=A=1,B=2", "own:static=4", "static",
    ]  # fmt: skip
    assert split_words("own:set=any:any:nc=4,chunk=512K,replay=a,b") == [
        "own:set=any:any:nc=4,chunk=512K",
        "replay=a,b",
    ]


def test_the_value_of_a_variable_may_be_a_list() -> None:
    text = "stock,env=NCCL_IB_HCA==mlx5_0:1,mlx5_1:1,A=1,B=,env=NCCL_SOCKET_IFNAME=eth0,eth1,off"
    arms = {arm.name: arm.environ for arm in parse_arms([text])}
    assert list(arms) == [
        "stock", "own:stock", "env=NCCL_IB_HCA==mlx5_0:1,mlx5_1:1,A=1,B=", "env=NCCL_SOCKET_IFNAME=eth0,eth1", "off",
    ]  # fmt: skip
    listed, other = (arms[name] for name in arms if name.startswith("env="))
    assert listed == {**NO_CONTROLLER, "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1", "A": "1", "B": ""}
    assert other == {**NO_CONTROLLER, "NCCL_SOCKET_IFNAME": "eth0,eth1"}


@pytest.mark.parametrize(
    ("text", "unknown"),
    [("stock,foo", "foo"), ("foo,stock", "foo"), ("off,lagom,foo=1,bar", "foo=1"), ("static=2,foo", "foo"),
     ("own:static=2,foo", "foo"), ("headroom=32,foo,set=any:any:nc=4", "foo")],
)  # fmt: skip
def test_of_several_words_the_one_that_is_no_arm_is_named(text: str, unknown: str) -> None:
    with pytest.raises(BadArm, match=f"there is no arm '{unknown}';"):
        parse_arms([text])


@pytest.mark.parametrize("words", [[""], [" , ,"], ["stock", ""]])
def test_no_arm_at_all_is_refused(words: list[str]) -> None:
    with pytest.raises(BadArm, match="--arms is empty"):
        parse_arms(words)


def test_stock_is_always_there_once_and_process_arms_bring_a_stock_of_their_own() -> None:
    arms = {arm.name: arm for arm in parse_arms(["stock,stock,lagom", "static=2,off"])}
    assert list(arms) == ["stock", "lagom", "static=2", "own:stock", "off"]
    assert arms["stock"].kind is arms["static=2"].kind is Kind.IN_JOB
    assert arms["lagom"].kind is Kind.TUNING
    assert arms["own:stock"].kind is Kind.PROCESS
    assert not arms["off"].plugin
    assert "own:stock" not in {arm.name for arm in parse_arms(["static,lagom"])}


def test_others_caps_are_theirs_to_the_letter() -> None:
    inside = {arm.name: arm.wish for arm in parse_arms(["dhelix,liger"])}
    assert inside["dhelix"] is not None
    assert inside["liger"] is not None
    assert (inside["dhelix"].cap, inside["dhelix"].threads) == (2, 256)
    assert (inside["liger"].cap, inside["liger"].threads) == (3, None)
    own = {arm.name: arm.environ for arm in parse_arms(["own:dhelix,own:liger"])}
    assert own["own:dhelix"]["NCCL_MAX_NCHANNELS"] == "2"
    assert own["own:dhelix"]["NCCL_NTHREADS"] == "256"
    assert own["own:liger"]["CUDA_DEVICE_MAX_CONNECTIONS"] == "2"


@pytest.mark.parametrize(
    "word",
    ["nonsense", "static=0", "static=many", "set=", "env=A", "env=A=1,NCCL_NTHREADS", "replay=/no/such/config",
     "set=allgather", "own:static", "own:grid", "headroom=1000", "off=1"],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused_with_a_sentence(word: str) -> None:
    with pytest.raises(LagomError) as refused:
        parse_arms([word])
    assert len(str(refused.value)) > 20


def test_an_own_arm_is_started_as_a_user_would(tmp_path: Path) -> None:
    config = tmp_path / "p.lagom"
    config.write_text("lagom-config 1\ncommunicator ranks=2 nodes=1 ordinal=0\nrule allgather 1048576 - nc=4\nend\n")
    own = {arm.name: arm for arm in parse_arms([f"own:static=4,own:replay={config},own:guided,headroom=32"])}
    assert own["own:static=4"].options == ("--set", "any:any:nc=4")
    assert own[f"own:replay={config}"].options[:3] == ("--mode", "replay", "--config")
    assert own["own:guided"].tunes
    assert own["headroom=32"].options == ("--headroom", "32")
    with pytest.raises(BadArm):
        parse_arms(["own:nothing"])
