"""Head-room: NCCL builds more channels than it would by itself, so that NC can be searched upwards too.

``NCCL_MIN_NCHANNELS`` is read when a communicator is built and raises what every call gets. What a plan does not speak
for must stay as it was, so the plugin puts stock's NC back at each such call, from the first one, whatever becomes of
the controller (``tuner_plugin/headroom.h``). For that stock's NC must be known *before* the start, from a job without
head-room: nothing in a job with head-room tells it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lagom.errors import LagomError

if TYPE_CHECKING:
    from lagom.journal import RunState

VARIABLE = "LAGOM_HEADROOM"
MOST_CHANNELS = 64  # NCCL's MAXCHANNELS
USUAL_THREADS = 512
#: GPU memory of one channel's receiving side, bytes: NCCL's default buffers of LL, LL128 and SIMPLE together.
CHANNEL_BYTES = (512 << 10) + 4_915_200 + (4 << 20)

#: The user's own word on how many channels there are; with one of these there is nothing left to raise.
USERS_OWN = ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS", "NCCL_MIN_CTAS",
             "NCCL_MAX_CTAS")  # fmt: skip
#: These move the sizes from which on NCCL uses a channel, which stock's NC at a call is computed from.
SIZES = ("NCCL_NTHREADS", "NCCL_LL128_NTHREADS", "NCCL_THREAD_THRESHOLDS")


class NoHeadroom(LagomError):
    """Head-room that cannot be had, or not without changing calls that nobody tunes."""


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


def wanted(asked: str, run: RunState | None, source: str) -> Headroom:
    """What ``--headroom`` asks for: ``32`` with stock's channels from the log of a job without head-room, ``run``
    (``source`` names it), or ``32:24`` with stock's number said. Raises :class:`NoHeadroom` where it is not known."""
    if ":" in asked:
        found = parse(asked)
        assert found is not None
        return found
    if not asked.isdecimal() or not asked.isascii():
        raise NoHeadroom(f"--headroom {asked} is not understood; give a number of channels, like 32 or 32:24.")
    if run is None:
        raise NoHeadroom(
            "how many channels NCCL builds here by itself is not known, and head-room must not change calls that are "
            "not tuned; run the job once without --headroom (20 iterations are enough), or say the number that NCCL's "
            f'own line tells under NCCL_DEBUG=INFO ("24 coll channels"): --headroom {asked}:24.'
        )
    stock, threads = stock_channels(run, source)
    return checked(Headroom(int(asked), stock, threads))


def checked(headroom: Headroom) -> Headroom:
    """The same; raises :class:`NoHeadroom` where there is none in it."""
    if headroom.built > MOST_CHANNELS:
        raise NoHeadroom(f"NCCL builds at most {MOST_CHANNELS} channels, and {headroom.built} were asked for.")
    if headroom.built <= headroom.stock:
        raise NoHeadroom(
            f"NCCL builds {headroom.stock} channels here by itself; ask for more than that, or for no head-room."
        )
    return headroom


def stock_channels(run: RunState, source: str) -> tuple[int, int]:
    """(channels NCCL built, threads of a RING/SIMPLE channel) in a job without head-room; raises :class:`NoHeadroom`
    where its log does not say, or where communicators differ: one number must do for all of a job."""
    if run.start is not None and run.start.headroom:
        raise NoHeadroom(f"{source} is of a job with head-room, which does not show stock's channels; name another.")
    seen: set[int] = set()
    threads: set[int] = set()
    for comm in run.comms.values():
        if comm.program is not None and comm.program.channels_built:
            seen.add(comm.program.channels_built)
            stock = (site.stock for site in comm.program.sites if site.stock is not None)
            threads |= {
                pick.threads for pick in stock if (pick.algorithm, pick.protocol) == ("ring", "simple") and pick.threads
            }
    if not seen:
        raise NoHeadroom(
            f"{source} does not say how many channels NCCL built: no large ring or tree collective was seen by the "
            "profiler half; run once more without --headroom and with NCCL_PROFILER_PLUGIN, or say it: "
            "--headroom 32:24."
        )
    if len(seen) > 1:
        raise NoHeadroom(
            f"NCCL built {' and '.join(map(str, sorted(seen)))} channels for different communicators of {source}, and "
            "head-room can put back one number only."
        )
    return seen.pop(), threads.pop() if len(threads) == 1 else USUAL_THREADS


def refuse_where_it_cannot_be(environ: Mapping[str, str], command: list[str]) -> None:
    """Raises :class:`NoHeadroom` where the user's settings or several nodes stand against it."""
    files = _conf_settings()
    for name in (*USERS_OWN, *SIZES):
        value = environ.get(name, "") or files.get(name, "")
        if value:
            why = (
                "your own word on the number of channels"
                if name in USERS_OWN
                else "moves the sizes NCCL uses channels from"
            )
            raise NoHeadroom(f"{name}={value} is {why}, and wins; unset it to use head-room.")
    if _several_nodes(environ, command):
        raise NoHeadroom(
            "the job runs on several nodes, where stock's channels are another matter; head-room is for one node."
        )


def _conf_settings() -> dict[str, str]:
    """What NCCL would read from its own files."""
    from lagom.doctor.environment import read_conf

    found: dict[str, str] = {}
    for file in (Path("/etc/nccl.conf"), Path.home() / ".nccl.conf"):
        found = {**read_conf(file), **found}
    return found


def _several_nodes(environ: Mapping[str, str], command: list[str]) -> bool:
    for name in ("SLURM_NNODES", "SLURM_STEP_NUM_NODES", "OMPI_MCA_orte_num_nodes"):
        if environ.get(name, "").isdecimal() and int(environ[name]) > 1:
            return True
    world, local = environ.get("WORLD_SIZE", ""), environ.get("LOCAL_WORLD_SIZE", "")
    if world.isdecimal() and local.isdecimal() and int(world) > int(local):
        return True
    return _torchrun_nodes(command) not in ("", "1", "1:1")


def _torchrun_nodes(command: list[str]) -> str:
    """The value of ``--nnodes`` in a command line; empty where it is not said."""
    for place, word in enumerate(command):
        name, _, value = word.partition("=")
        if name.replace("_", "-") == "--nnodes":
            return value or (command[place + 1] if place + 1 < len(command) else "")
    return ""
