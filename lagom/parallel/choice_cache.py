# SPDX-License-Identifier: Apache-2.0
"""Choices that were measured before: one file a call in ``parallel/`` of the cache folder. What another user could have
written is not used, and what cannot be read is measured again."""

from __future__ import annotations

import hashlib
import json
import stat
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lagom.files import not_ours, read_own, write_whole
from lagom.parallel.matmul_call import MatmulCall
from lagom.parallel.said_once import say_once
from lagom.settings import cache_folder

Nanoseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class StoredChoice(BaseModel):
    """What a file holds. ``key``: call and versions, as they were; ``times_ns``: the median of each; ``captured`` and
    ``device_times_ns``: the same for CUDA graphs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    key: str
    chosen: str
    times_ns: dict[str, Nanoseconds] = Field(max_length=16)
    captured: str
    device_times_ns: dict[str, Nanoseconds] = Field(max_length=16)
    digest: str

    def is_whole(self) -> bool:
        """Whether the file holds what was written."""
        return self.digest == _digest(self.model_dump_json(exclude={"digest"}))


def key_of(call: MatmulCall) -> str:
    """The call, and what else its times depend on."""
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if call.device != "cpu" else "none"
    return json.dumps({**asdict(call), "torch": torch.__version__, "nccl": nccl}, sort_keys=True)


def load_choice(call: MatmulCall) -> StoredChoice | None:
    """What is kept of a call; None, with one sentence in the log, where there is something that cannot be used."""
    path = _path(call)
    if path is None:
        return None
    try:
        path.lstat()
        if reason := _refusal(path):
            raise ValueError(reason)
        found = StoredChoice.model_validate_json(read_own(path))
        if found.key != key_of(call) or not found.is_whole():
            raise ValueError("it does not hold what was written")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = "it is no choice of this version" if isinstance(error, ValidationError) else str(error)
        say_once(f"{path} is not used ({reason}), so the call is measured again.")
        return None
    return found


def save_choice(
    call: MatmulCall, chosen: str, times_ns: dict[str, float], captured: str, device_times_ns: dict[str, float]
) -> None:
    """Keep a choice for the next start; where that cannot be, one sentence in the log."""
    path = _path(call)
    if path is None:
        return
    stored = StoredChoice(
        key=key_of(call),
        chosen=chosen,
        times_ns=times_ns,
        captured=captured,
        device_times_ns=device_times_ns,
        digest="",
    )
    stored = stored.model_copy(update={"digest": _digest(stored.model_dump_json(exclude={"digest"}))})
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := _refusal(path):
            raise OSError(reason)
        write_whole(path, stored.model_dump_json() + "\n", mode=0o600)
    except OSError as error:
        say_once(f"The choices of lagom.parallel are not kept in {path.parent} ({error}).")


def _path(call: MatmulCall) -> Path | None:
    folder = cache_folder()
    return folder and folder / "parallel" / f"{_digest(key_of(call))[:32]}.json"


def _refusal(path: Path) -> str:
    """Why the file or a folder above it, up to the cache folder, is not this user's alone; empty = it is."""
    for folder in (path.parent.parent, path.parent):
        if reason := not_ours(folder):
            return f"{folder} {reason}"
    for one in (path.parent.parent, path.parent, path):
        if one.exists() and one.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{one} may be written by others"
    return ""


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
