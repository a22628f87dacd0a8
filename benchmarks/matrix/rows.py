# SPDX-License-Identifier: Apache-2.0
"""The rows: each a question with the job, the regime and the arms that answer it, most telling first.

``seconds`` are what a row takes on eight H200s by the step times measured so far, start-ups of 20 to 30 s included;
they only order and select.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

#: An iteration's length as the jobs print it.
METRIC = r'"ms": ([0-9.]+)'
ENDLESS = 1_000_000
#: In a row's options: the folder that the row's script of assets has filled.
ASSETS = "{assets}"
#: What users can do without Lagom, and what other systems set.
BASELINES = ("static", "dhelix", "liger")
#: NCCL's own kernel times are of no use beside an AlltoAll, so a window there takes 80 iterations: two caps, no sweep.
EP_ARMS = ("lagom", "static=4", "static=8")
#: By hand, before there was a search: shared/chunk settings that gave most on the host path.
BY_HAND = ("set=any:>=1M:chunk=256K", "set=any:>=1M:nc=3,chunk=512K")

TITAN = "needs torchtitan 0.2.2 and what it needs (datasets, torchdata, tyro), as wheels where there is no registry"

#: Stock is 32 channels and 512 KiB (NCCL's NCCL_P2P_NVL_CHUNKSIZE) on NVLink.
EP_P2P = (
    "env=NCCL_MAX_P2P_NCHANNELS=8", "env=NCCL_MAX_P2P_NCHANNELS=16", "env=NCCL_P2P_NVL_CHUNKSIZE=131072",
    "env=NCCL_P2P_NVL_CHUNKSIZE=2097152", "env=NCCL_MAX_P2P_NCHANNELS=16,NCCL_P2P_NVL_CHUNKSIZE=2097152",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One question. ``kind`` names the module that answers it. ``target``: the speed-up the named arm has to reach."""

    name: str
    asks: str
    kind: str
    script: str
    options: tuple[str, ...] = ()
    regime: str = "nvlink"
    nccl: str = "bundled"
    arms: tuple[str, ...] = ()
    cycles: int = 8
    rounds: int = 4
    seconds: float = 150.0
    target: float | None = None
    arm: str = "lagom"  # which the target is for
    environ: dict[str, str] = field(default_factory=dict)
    least_gpus: int = 2
    ranks: int = 0  # on the one GPU that they share; 0: one rank a GPU
    note: str = ""
    assets: str = ""  # the script that makes what the job reads
    spread: bool = False  # longer than one command: process by process, or cycle by cycle, over several

    @property
    def regime_text(self) -> str:
        """For tables."""
        return {
            "nvlink": "NVLink", "host": "host path", "sockets": 'sockets, two "nodes"',
            "shared": f"{self.ranks} ranks share one GPU, MPS",
        }[self.regime]  # fmt: skip


def rows() -> tuple[Row, ...]:
    """All of them, in the order in which they are run."""
    return tuple(
        row
        for part in (
            _headline(),
            _default(),
            _proofs(),
            _nvlink(),
            _foreign_jobs(),
            _contention(),
            _alternatives(),
            _cells(),
        )
        for row in part
    )


def _fsdp(layers: int, tokens: int, *more: str, shape: str = "llama3_8b") -> tuple[str, ...]:
    return ("--shape", shape, "--layers", str(layers), "--tokens", str(tokens), *more)


def _titan(model: str, flavor: str, batch: int) -> tuple[str, ...]:
    """torchtitan's own training script on a model as it is published, every layer of it."""
    return (
        "--model.name", model, "--model.flavor", flavor, "--model.hf-assets-path", f"{ASSETS}/tokenizer",
        "--training.dataset", "c4_test", "--training.dataset-path", f"{ASSETS}/text", "--training.local-batch-size",
        str(batch), "--training.seq-len", "4096", "--training.steps", str(ENDLESS),
    )  # fmt: skip


def _headline() -> Iterator[Row]:
    """Where the gain is: the host path."""
    yield Row(
        "host-fsdp-16384", ">= 1.40x stock; hand-forced C = 256 KiB gave 1.396", "bench", "fsdp.py", _fsdp(3, 16384),
        "host", "2.30", ("lagom", "autoccl", *BASELINES, *BY_HAND), cycles=8, seconds=560, target=1.40, spread=True,
    )  # fmt: skip
    yield Row(
        "host-fsdp-32768", ">= 1.06x stock where compute is the bottleneck; ahead of comm-only and of the best cap",
        "bench", "fsdp.py", _fsdp(2, 32768), "host", "2.30", ("lagom", "autoccl", *BASELINES, *BY_HAND), cycles=8,
        seconds=840, target=1.06, spread=True,
    )  # fmt: skip
    yield Row(
        "host-fsdp-8192", "the same with fewer tokens: where communication is the longer part", "bench", "fsdp.py",
        _fsdp(3, 8192), "host", "2.30", ("lagom", "guided", "static", *BY_HAND), cycles=8, seconds=340,
    )  # fmt: skip
    yield Row(
        "host-guided-16384", "what `guided` finds, in how many configs", "bench", "fsdp.py", _fsdp(3, 16384), "host",
        "2.30", ("guided", *BY_HAND), cycles=8, seconds=260,
    )  # fmt: skip
    yield Row(
        "host-ddp-8192", "DistributedDataParallel: about 1.02x, found and proven within 40 s", "bench", "ddp.py",
        ("--layers", "8", "--tokens", "8192"), "host", "2.30", ("auto",), cycles=8, seconds=150,
    )  # fmt: skip
    yield Row(
        "host-timeline-8192", "with kernels recorded: sites told apart by what hides them; `guided` with its program: "
        "<= 12 configs, <= 15 iterations lost", "bench", "fsdp.py", _fsdp(3, 8192), "host", "2.30", ("guided", "lagom"),
        cycles=6, seconds=220, environ={"LAGOM_TIMELINE": "1"},
    )  # fmt: skip
    yield Row(
        "host228-fsdp-16384", ">= 1.10x stock without chunk sizes", "bench", "fsdp.py", _fsdp(3, 16384), "host",
        "bundled", ("lagom", "autoccl", *BASELINES), cycles=8, seconds=440, target=1.10,
    )  # fmt: skip
    yield Row(
        "host228-fsdp-32768", ">= 1.04x stock without chunk sizes, compute-bound", "bench", "fsdp.py", _fsdp(2, 32768),
        "host", "bundled", ("lagom", "autoccl", *BASELINES), cycles=8, seconds=560, target=1.04,
    )  # fmt: skip


def _default() -> Iterator[Row]:
    """The default strategy beside what a user could set or search, in one job."""
    wide = ("--layers", "8", "--tokens", "8192")
    experts = ("--layers", "4", "--tokens", "16384")
    searches, by_hand = ("auto", "autoccl", "static"), (*BY_HAND, "set=any:>=1M:chunk=512K")
    for name, script, options, host in (
        ("fsdp-16384", "fsdp.py", _fsdp(3, 16384), True),
        ("fsdp-8192", "fsdp.py", _fsdp(3, 8192), True),
        ("nvlink-fsdp-4096", "fsdp.py", _fsdp(4, 4096), False),
        ("nvlink-tp-8192", "tp_domino.py", wide, False),
        ("nvlink-ep-16384", "ep_two_batch.py", experts, False),
        ("nvlink-ddp-8192", "ddp.py", wide, False),
    ):
        arms = (*searches, *by_hand) if host else ("auto", *EP_ARMS[1:]) if options is experts else searches
        yield Row(
            f"default-{name}", "the default strategy: not behind the best setting by hand by more than 1 %", "bench",
            script, options, *(("host", "2.30") if host else ()), arms=arms, cycles=8, seconds=280, arm="auto",
        )  # fmt: skip


def _proofs() -> Iterator[Row]:
    """What tuning does to losses, and whether its result lasts."""
    yield Row(
        "numerics", "200 steps tuned live: loss differs from stock's no more than between two stock NC settings; "
        "AllGather alone: the same bits", "numerics", "fsdp.py",
        _fsdp(2, 2048, "--sequence", "1024", "--steps", "200"), "host", "2.30", seconds=240,
    )  # fmt: skip
    yield Row(
        "steady", "after tuning the job runs as its replay does", "replay_check", "fsdp.py", _fsdp(3, 4096), "host",
        "2.30", seconds=1500, rounds=6, spread=True,
    )  # fmt: skip


def _nvlink() -> Iterator[Row]:
    """Where stock is near the optimum: never slower, and found out quickly."""
    for tokens, layers, seconds in ((4096, 4, 250), (8192, 4, 330), (2048, 6, 200)):
        yield Row(
            f"nvlink-fsdp-{tokens}", ">= 0.995x stock within the interval", "bench", "fsdp.py", _fsdp(layers, tokens),
            arms=("lagom", "autoccl", *BASELINES), cycles=8, seconds=seconds, target=0.995,
        )  # fmt: skip
    yield Row(
        "nvlink-tp-8192", ">= 0.995x stock: Domino, two half batches", "bench", "tp_domino.py",
        ("--layers", "8", "--tokens", "8192"), arms=("lagom", *BASELINES), cycles=12, seconds=120, target=0.995,
        least_gpus=4,
    )  # fmt: skip
    yield Row(
        "nvlink-ep-16384", ">= 0.995x stock: two-batch experts (AlltoAll asks no tuner; the gradients' AllReduce does)",
        "bench", "ep_two_batch.py", ("--layers", "4", "--tokens", "16384"), arms=EP_ARMS, cycles=8,
        seconds=300, target=0.995,
    )  # fmt: skip
    yield Row(
        "nvlink-ddp-8192", ">= 0.995x stock: DistributedDataParallel", "bench", "ddp.py",
        ("--layers", "8", "--tokens", "8192"), arms=("lagom", *BASELINES), cycles=12, seconds=120, target=0.995,
    )  # fmt: skip


def _foreign_jobs() -> Iterator[Row]:
    """Jobs that Lagom was not made for: they run as without it."""
    steps = ("--steps", "150")
    yield Row(
        "foreign-trainer", "the loop of transformers.Trainer (FSDP2 through accelerate), started by a script of "
        "ours: tuned, compared", "bench", "trainer.py", _fsdp(3, 8192), "host", "2.30", ("lagom", "static"),
        cycles=8, seconds=300,
    )  # fmt: skip
    titan = "-m torchtitan.train"
    yield Row(
        "foreign-titan-llama3", "torchtitan's own script, installed as a package, on Llama-3-8B whole: tuned, compared",
        "bench", titan, _titan("llama3", "8B", 1), arms=("lagom", "static"), cycles=8, seconds=300,
        assets="titan_assets.py", note=TITAN,
    )  # fmt: skip
    yield Row(
        "foreign-titan-guided", "the same by `guided`: with steps this long only few configs can be tried in minutes",
        "bench", titan, _titan("llama3", "8B", 1), arms=("guided",), cycles=6, seconds=260, spread=True,
        assets="titan_assets.py", note=TITAN,
    )  # fmt: skip
    yield Row(
        "foreign-titan-qwen3", "the same script on Qwen3-0.6B whole, where bandwidth is scarce", "bench", titan,
        _titan("qwen3", "0.6B", 2), "host", "2.30", ("lagom", "static"), cycles=8, seconds=270,
        assets="titan_assets.py", note=TITAN,
    )  # fmt: skip
    meshes = {
        "mesh-fsdp-tp": (_fsdp(4, 4096, "--mesh", "fsdp_tp"), 4),
        "mesh-hsdp": (_fsdp(4, 4096, "--mesh", "hsdp"), 4),
        "mesh-checkpointing": (_fsdp(4, 4096, "--checkpointing"), 2),
        "mesh-compile": (_fsdp(4, 4096, "--compile"), 2),
    }
    for name, (options, least) in meshes.items():
        yield Row(
            name,
            "the job runs as without Lagom",
            "foreign_jobs",
            "fsdp.py",
            (*options, *steps),
            seconds=100,
            least_gpus=least,
        )  # fmt: skip
    together = {"NCCL_MAX_CTAS": "16"}  # four ranks with 64 channels each hang, also without us: shared_gpu_202611.md
    compared = ("off", "off again", "lagom")
    others = ("autoccl", "set=any:>=1M:nc=32")  # where there is something to gain
    for name, script, options, ranks, steps, arms, start in (
        ("cost-shared-ddp", "transformer_ddp.py", (), 2, "1000", (*compared, *others), {}),
        ("cost-shared-fsdp", "fsdp_nodes.py", ("--layers", "4", "--tokens", "2048"), 4, "500", compared, together),
    ):
        yield Row(
            name, "mean step of whole processes compared with the job without Lagom, the search included: tuned live; "
            "where there is something to gain also tuned for communication alone, and one config set by hand",
            "foreign_jobs", script, (*options, "--steps", steps), "shared", "2.30", arms, rounds=6, seconds=2000,
            least_gpus=1, ranks=ranks, spread=True, environ=start,
            note="needs an MPS server (nvidia-cuda-mps-control -d) with CUDA_MPS_PIPE_DIRECTORY=/tmp/mps",
        )  # fmt: skip
    yield Row(
        "sockets-two-nodes", "stock behaviour, and the log says why", "passthrough", "two_nodes.py",
        _fsdp(2, 4096, "--steps", "40"), "sockets", seconds=90, least_gpus=4,
    )  # fmt: skip


def _contention() -> Iterator[Row]:
    """The paper's figures 3 and 5, and what NT does."""
    for gemm in ("library", "waves"):
        yield Row(
            f"fig3-{gemm}", "AllReduce 32 MB beside a feed-forward layer: NC x C at NT = 128, NC at C = 16 KiB, "
            "C at NC = 4, NT alone", "sweep", "contention.py", ("--pattern", "ffn", "--gemm", gemm), "nvlink", "2.30",
            seconds=210, cycles=6, environ={"LAGOM_NT": "1", "NCCL_MIN_CTAS": "32"},
            note="NCCL told to build 32 channels",
        )  # fmt: skip
    yield Row(
        "fig5", "two AllReduces beside seven products: NC of one at a time", "sweep", "contention.py",
        ("--pattern", "two"), "nvlink", "2.30", seconds=110, cycles=8,
    )  # fmt: skip
    yield Row(
        "nt-host-16384", "NT alone: negligible?", "bench", "fsdp.py", _fsdp(3, 16384), "host", "2.30",
        ("set=any:>=1M:nt=128", "set=any:>=1M:nt=256", "set=any:>=1M:nt=384"), cycles=6, seconds=150,
        environ={"LAGOM_NT": "1"},
    )  # fmt: skip


def _alternatives() -> Iterator[Row]:
    """What else a user could do, and the best there is to find."""
    yield Row(
        "literal-host-16384", "what DHelix and Liger export, literally, each in processes of its own",
        "bench", "fsdp.py", _fsdp(3, 16384), "host", "2.30", ("own:dhelix", "own:liger", "own:lagom"), rounds=6,
        seconds=1300, spread=True,
    )  # fmt: skip
    yield Row(
        "nvlink-headroom-run-8192", "`lagom run --headroom`: 32 channels built where NCCL builds 24; beside tuning "
        "without it", "bench", "fsdp.py", _fsdp(4, 8192), arms=("headroom=32:24", "own:lagom"), rounds=6, seconds=1500,
        spread=True,
    )  # fmt: skip
    yield Row(
        "nvlink-headroom-8192", "is there a gain with more channels than NCCL builds by itself? stock is 32 here",
        "bench", "fsdp.py", _fsdp(4, 8192), arms=("static=24", "static=16"), cycles=16, seconds=120,
        environ={"NCCL_MIN_CTAS": "32"},
    )  # fmt: skip
    yield Row(
        "nvlink-zero-cta-4096", "AllGather by copy engines, no SMs (published: +2.4 %)", "bench", "fsdp.py",
        _fsdp(4, 4096), arms=("env=FSDP_COPY_ENGINE=1,NCCL_CTA_POLICY=2",), rounds=6, seconds=560, spread=True,
    )  # fmt: skip
    yield Row(
        "nvlink-ep-p2p", "the AlltoAll's own channels and chunk, which only a start can set", "bench",
        "ep_two_batch.py", ("--layers", "4", "--tokens", "16384"), arms=EP_P2P, rounds=6, seconds=1400, spread=True,
    )  # fmt: skip
    yield Row(
        "nvlink-positions-4096", "is there a gain with configs by position?", "bench", "fsdp.py", _fsdp(4, 4096),
        arms=("lagom", "guided"), cycles=12, seconds=150, environ={"LAGOM_TIMELINE": "1"}, target=0.995,
    )  # fmt: skip
    yield Row(
        "oracle-host-16384", "the best setting shared by all calls, of a grid", "bench", "fsdp.py", _fsdp(3, 16384),
        "host", "2.30", ("grid",), cycles=6, seconds=600, spread=True,
    )  # fmt: skip
    yield Row(
        "oracle-nvlink-4096", "the same on NVLink", "bench", "fsdp.py", _fsdp(4, 4096), "nvlink", "2.30", ("grid",),
        cycles=8, seconds=380,
    )  # fmt: skip


#: Model: (micro-batch of Table 2 x the sequence it was trained with, layers kept).
_DENSE = {"phi2_2b": (2 * 2048, 6), "llama3_8b": (4096, 4), "mpt_7b": (2048, 4)}
_TP_TOKENS = {"phi2_2b": 8 * 2048, "llama3_8b": 4 * 4096, "mpt_7b": 2 * 2048}
_EXPERTS = ("olmoe_1b_7b", "deepseek_moe_16b")


def _cells() -> Iterator[Row]:
    """The paper's matrix: {Phi-2, Llama-3-8B, MPT-7B} x {FSDP, TP} and two MoE x EP, on NVLink and the host path."""
    arms = ("lagom", "autoccl", *BASELINES)
    for regime, nccl in (("host", "2.30"), ("nvlink", "bundled")):
        for model, (tokens, layers) in _DENSE.items():
            yield Row(
                f"cell-fsdp-{model}-{regime}", "a cell of the paper's matrix", "bench", "fsdp.py",
                _fsdp(layers, tokens, "--sequence", "0", "--vocab", "0", shape=model), regime, nccl, arms, cycles=8,
                seconds=240,
            )  # fmt: skip
        for model in _DENSE:
            yield Row(
                f"cell-tp-{model}-{regime}", "a cell of the paper's matrix", "bench", "tp_domino.py",
                ("--shape", model, "--layers", "6", "--tokens", str(_TP_TOKENS[model])), regime, nccl, arms, cycles=8,
                seconds=220, least_gpus=4,
            )  # fmt: skip
        for model in _EXPERTS:
            yield Row(
                f"cell-ep-{model}-{regime}", "a cell of the paper's matrix", "bench", "ep_two_batch.py",
                ("--shape", model, "--layers", "4", "--tokens", "8192"), regime, nccl, EP_ARMS, cycles=8,
                seconds=300,
            )  # fmt: skip
    yield Row(
        "tp4-dp2-nvlink", "TP-4 x DP-2, Domino", "bench", "tp_domino.py",
        ("--layers", "6", "--tokens", "8192", "--data", "2"), arms=("lagom", "static"), cycles=8, seconds=130,
        least_gpus=4,
    )  # fmt: skip


#: What ten minutes on GPUs are best spent on.
QUICK = ("host-fsdp-8192", "nvlink-fsdp-4096")
