# SPDX-License-Identifier: Apache-2.0
"""fsdp.py with the ranks of one machine divided into two "nodes" that only sockets connect. Knows nothing of any tuner.

torchrun --nproc-per-node 8 two_nodes.py --layers 2 --tokens 4096
"""

from __future__ import annotations

import os

import fsdp


def main() -> None:
    local, world = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    os.environ["NCCL_HOSTID"] = f"node{2 * local // world}"  # what NCCL tells machines apart by
    fsdp.main()


if __name__ == "__main__":
    main()
