# SPDX-License-Identifier: Apache-2.0
"""Would a saved config be replayed on this machine? Asked of the C code that decides it in the plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagom.config_file import Fingerprint, load_config
from lagom.doctor.libraries import find_nccl
from lagom.environment import describe_differences, find_gpu, with_conf_files
from lagom.headroom import VARIABLE as HEADROOM
from lagom.headroom import parse as parse_headroom
from lagom.settings import is_simulated
from lagom.wire.config_refusal import ConfigRefusal, refusal_of
from lagom.wire.layout import ffi
from lagom.wire.library import library


@dataclass(frozen=True, slots=True)
class ConfigFit:
    """Whether a saved config would be replayed on this machine. ``refusal`` is the plugin's own sentence; empty = it
    fits as far as it could be compared. ``unknown``: what is known only once the job runs."""

    refusal: str
    unknown: tuple[str, ...] = ()


def fit(path: Path, wanted: Fingerprint, environ: Mapping[str, str], nccl: int | None = None) -> ConfigFit:
    """What can be compared without the job: GPU, peer access, the NCCL that a job would load, the environment. What it
    does not know of is taken to be as wanted, and named in ``unknown``. ``nccl``: its version code, if known."""
    environ = with_conf_files(environ)
    found = nccl if nccl is not None else find_nccl(environ)
    unknown = [f"{wanted.ranks} ranks"] if wanted.ranks else []
    if wanted.nccl_version and not found:
        unknown.append("the NCCL it loads")
    refused = machine_refusal(wanted, environ, found)
    refusal = "" if refused is None else refused.clause
    asked = load_config(path).environment
    if not parse_headroom(asked.get(HEADROOM, "")):  # which is never set unasked: it costs memory
        settable = [name for name in asked if not environ.get(name)]
        unknown += [f"{name}={asked.pop(name)}, which `lagom run` sets" for name in settable]
    if not refusal and (different := describe_differences(asked, environ)):
        refusal = f"made in an environment that is another here: {'; '.join(different)}."
    return ConfigFit(refusal, tuple(unknown))


def machine_refusal(wanted: Fingerprint, environ: Mapping[str, str], nccl: int) -> ConfigRefusal | None:
    """Why a saved config of that fingerprint is for another machine; None where it is not. ``nccl``: the version code
    that a job would load; 0 = not known, and not compared."""
    here = Fingerprint(
        nccl_version=nccl or wanted.nccl_version,
        ranks=wanted.ranks,
        nodes=wanted.nodes,
        gpu=find_gpu(),
        p2p=environ.get("NCCL_P2P_DISABLE", "0") in ("", "0"),
        simulated=is_simulated(environ),
    )
    fields = ffi.new("struct lagom_refusal *")
    return refusal_of(library().lagom_fingerprint_compare(_struct(wanted), _struct(here), fields), fields)


def _struct(print_: Fingerprint) -> Any:
    struct = ffi.new("struct lagom_fingerprint *")
    struct.nccl_version, struct.ranks, struct.nodes = print_.nccl_version, print_.ranks, print_.nodes
    struct.p2p = -1 if print_.p2p is None else int(print_.p2p)
    struct.gpu, struct.simulated = print_.gpu.encode()[:63], print_.simulated
    return struct
