# SPDX-License-Identifier: Apache-2.0
"""The table of start settings: what may be asked for, what is never searched, and the groups that are tried first."""

from __future__ import annotations

from pathlib import Path

import pytest

from lagom.config_file import Fingerprint, SavedConfig, load_config, save_config
from lagom.environment import fits, select_known
from lagom.start import VARIABLES, StartVariable, Transport, find_variable, known_factors, known_groups
from lagom.start.start_groups import COPY_ENGINES

#: A short run cannot judge them, or they can give wrong data, hang, or break what the site or the program decided.
NEVER_SEARCHED = (
    "LAGOM_HEADROOM", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_PROTO", "NCCL_ALGO", "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_NET_GDR_LEVEL",
)  # fmt: skip
NEVER_ASKED_FOR = (
    "NCCL_CHUNK_SIZE", "NCCL_SOCKET_IFNAME", "NCCL_IB_TC", "NCCL_IB_HCA", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN",
    "NCCL_HOSTID", "NCCL_MULTI_RANK_GPU_ENABLE", "TORCH_NCCL_AVOID_RECORD_STREAMS", "LD_PRELOAD", "NCCL_CONF_FILE",
)  # fmt: skip
THREADS = "NCCL_SOCKET_NTHREADS"


@pytest.mark.parametrize("row", VARIABLES, ids=lambda row: row.name)
def test_every_row_is_complete(row: StartVariable) -> None:
    assert row.meaning
    assert row.source
    assert bool(row.values) == bool(row.worth), "what is tried is tried somewhere"
    assert all(fits(value) for value in row.values)
    assert all(find_variable(name) is not row for name in row.together)


@pytest.mark.parametrize(
    ("since", "nccl", "is_read"),
    [
        ("2.24", 22403, True),
        ("2.24.3", 22403, True),
        ("2.24.4", 22403, False),
        ("2.25", 22403, False),
        ("2.25", 0, True),  # which NCCL it is, is not known
        ("", 22403, True),
        ("torch 2.6", 22403, True),
    ],
)
def test_a_variable_is_read_from_its_first_release_on(since: str, nccl: int, is_read: bool) -> None:
    assert StartVariable("X", "", since=since).is_read_by(nccl) is is_read


def test_what_is_never_searched_has_no_values_and_what_is_never_asked_for_is_not_in_the_table() -> None:
    assert not any(find_variable(name).values for name in NEVER_SEARCHED)
    for name in NEVER_ASKED_FOR:
        with pytest.raises(KeyError):
            find_variable(name)
    assert not select_known(dict.fromkeys(NEVER_ASKED_FOR, "1"))


def test_sizes_are_plain_numbers_since_nccl_reads_8m_as_8() -> None:
    sizes = [value for row in VARIABLES if "SIZE" in row.name for value in row.values]
    assert sizes
    assert all(value.isdecimal() and int(value) % 4096 == 0 for value in sizes)


@pytest.mark.parametrize("transport", list(Transport))
def test_groups_are_of_the_table_and_fit_into_a_saved_config(transport: Transport) -> None:
    groups = known_groups(transport)
    assert bool(groups) == (transport is Transport.SOCKET)
    assert len({group.name for group in groups}) == len(groups)
    for group in groups:
        for name, value in group.settings.items():
            assert transport in find_variable(name).worth
            assert value in find_variable(name).values
            assert fits(value)
        assert int(group.settings[THREADS]) <= 16
        assert int(group.settings[THREADS]) * int(group.settings["NCCL_NSOCKS_PERTHREAD"]) <= 64


@pytest.mark.parametrize("transport", list(Transport))
def test_copy_engines_are_tried_over_nvlink_where_the_job_registers_windows(transport: Transport) -> None:
    without, with_windows = known_groups(transport), known_groups(transport, has_windows=True)
    assert (COPY_ENGINES in with_windows) == (transport is Transport.NVLINK)
    assert COPY_ENGINES not in without
    assert "NCCL_CTA_POLICY" not in known_factors(transport)
    assert COPY_ENGINES.settings == {row.name: row.values[0] for row in VARIABLES if row.needs_windows}


def test_a_small_machine_does_not_get_threads_that_it_cannot_run() -> None:
    everything, few = known_groups(Transport.SOCKET), known_groups(Transport.SOCKET, cores=4)
    assert 0 < len(few) < len(everything)
    assert max(group.rank_threads for group in few) <= 32


@pytest.mark.parametrize("cores", [1, 2, 4, 8, 16, 64])
def test_helper_threads_are_limited_by_the_cores_and_the_order_stays(cores: int) -> None:
    everything, some = known_groups(Transport.SOCKET), known_groups(Transport.SOCKET, cores)
    assert some == tuple(group for group in everything if group in some)
    assert all((group in some) == (group.rank_threads <= 8 * cores) for group in everything)
    for group in everything:
        threads, channels = (int(group.settings.get(name, "2")) for name in (THREADS, "NCCL_MIN_NCHANNELS"))
        assert group.rank_threads == 2 * channels * threads, "it sends on every channel, and receives on every one"


def test_the_fastest_that_was_measured_is_tried_first_and_everywhere() -> None:
    first = known_groups(Transport.SOCKET, cores=16)[0]
    assert first.text == "NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4 NCCL_MIN_NCHANNELS=8"
    assert known_groups(Transport.SOCKET)[0] == first


def test_a_shell_takes_the_text_of_a_group() -> None:
    for group in known_groups(Transport.SOCKET):
        assert dict(word.split("=") for word in group.text.split()) == group.settings


def test_a_saved_config_holds_every_variable_at_once(tmp_path: Path) -> None:
    """The plugin's reader has room for the whole table."""
    wanted = {row.name: row.values[0] if row.values else "1" for row in VARIABLES}
    save_config(SavedConfig(Fingerprint(), (), wanted), tmp_path / "all.lagom")
    assert load_config(tmp_path / "all.lagom").environment == wanted
