# SPDX-License-Identifier: Apache-2.0
"""Head-room: NCCL builds more channels than it would by itself, so that NC can be searched upwards too.

``NCCL_MIN_NCHANNELS`` is read when a communicator is built and raises what every call gets. Calls that no plan
covers must stay as they were, so the plugin sets stock's NC for each of them, from the first one, with or without a
controller (``tuner_plugin/headroom.h``). So stock's NC must be known *before* the start, from a job without head-room:
a job with head-room does not show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lagom.errors import LagomError

if TYPE_CHECKING:
    pass

VARIABLE = "LAGOM_HEADROOM"
MOST_CHANNELS = 64  # NCCL's MAXCHANNELS
USUAL_THREADS = 512
#: GPU memory of one channel's receiving side, bytes: NCCL's default buffers of LL, LL128 and SIMPLE together.
CHANNEL_BYTES = (512 << 10) + 4_915_200 + (4 << 20)


class NoHeadroom(LagomError):
    """Head-room is impossible here, or would change calls that are not tuned."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Channels built, those NCCL would have built, and the threads of its RING/SIMPLE channels (512, or 256 where it
    takes the path for a slow one)."""

    built: int
    stock: int
    threads: int = USUAL_THREADS

    def __str__(self) -> str:
        threads = "" if self.threads == USUAL_THREADS else f":{self.threads}"
        return f"{self.built}:{self.stock}{threads}"

    def environment(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """What the job is started with. Send/recv would get more channels too (NCCL derives them from these), so its
        number is held at stock's, or at the user's own in ``environ`` if that is lower: NCCL rounds it up to a power of
        two itself, as it does without head-room."""
        own = (environ or {}).get("NCCL_MAX_P2P_NCHANNELS", "")
        most = min(int(own), self.stock) if own.isdecimal() and own.isascii() else self.stock
        return {
            "NCCL_MIN_NCHANNELS": str(self.built),
            "NCCL_MAX_P2P_NCHANNELS": str(most),
            VARIABLE: str(self),
        }

    @property
    def memory(self) -> int:
        """GPU memory a rank pays for each communicator, bytes, by NCCL's default buffers: a ring receives from one
        neighbour on every channel. Where trees are connected as well it is up to four times that."""
        return (self.built - self.stock) * CHANNEL_BYTES


def parse(text: str) -> Headroom | None:
    """``32:24`` or ``32:24:256``; ``None`` for an empty value; raises :class:`NoHeadroom`."""
    if not text:
        return None
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.isdecimal() and part.isascii() for part in parts):
        raise NoHeadroom(
            f"head-room {text!r} is not understood; write channels built and channels of stock, like 32:24."
        )
    found = Headroom(*(int(part) for part in parts))
    if not 1 <= found.stock <= found.built <= MOST_CHANNELS or not 0 < found.threads <= 640:
        raise NoHeadroom(
            f"head-room {text!r} is not possible: at most {MOST_CHANNELS} channels, and no fewer than stock's."
        )
    return found
