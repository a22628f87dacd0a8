# SPDX-License-Identifier: Apache-2.0
"""How ranks name their job: what differs anywhere makes another key, however long it is."""

from __future__ import annotations

import pytest

from lagom.wire.job_key import key_and_region

LONG = "a" * 6000
ELASTIC = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"LAGOM_JOB_ID": LONG + "1"}, {"LAGOM_JOB_ID": LONG + "2"}),
        (ELASTIC | {"MASTER_ADDR": LONG}, ELASTIC | {"MASTER_ADDR": LONG, "MASTER_PORT": "29501"}),
        (ELASTIC, ELASTIC | {"NCCL_HOSTID": LONG}),
        (ELASTIC | {"NCCL_HOSTID": LONG + "1"}, ELASTIC | {"NCCL_HOSTID": LONG + "2"}),
        (ELASTIC, ELASTIC | {"TORCHELASTIC_RESTART_COUNT": "1"}),
    ],
)
def test_what_differs_anywhere_is_another_job(
    one: dict[str, str], other: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NCCL_HOSTID", raising=False)
    keys = [key_and_region(environ)[0] for environ in (one, one, other)]
    assert keys[0] == keys[1] != keys[2]
    assert max(map(len, keys)) < 255


def test_a_name_of_ordinary_length_is_in_the_key() -> None:
    assert key_and_region({"LAGOM_JOB_ID": "pretrain-7b"})[0].startswith("lagom.pretrain-7b uid=")
