#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `lagom tune` on one or two GPUs: how start settings are found from nothing, and how the next start of the job uses them
# from the cache. On one GPU its ranks share it: a stand-in that says nothing about the speed of several. Times are those
# of the regime it prints.
#
#   benchmarks/start_settings.sh OUT [time-sliced|mps] [fsdp|ddp|ep] [options of lagom tune]
#   benchmarks/start_settings.sh OUT one-node fsdp [options of lagom tune]
#   benchmarks/start_settings.sh OUT two-gpus [fsdp-4096|fsdp-32768|copy-engines|ep-host|ep-nvlink] [options of lagom tune]
#
# time-sliced, mps: two ranks as two nodes over loopback sockets. one-node: four ranks of FSDP on one node under MPS; it
# needs NCCL 2.30.3 or later (LD_PRELOAD=/path/to/libnccl.so.2). two-gpus: a rank on each; as two nodes over loopback
# sockets, and as one node for copy-engines (over NVLink, with buffers in symmetric windows) and for AlltoAll (ep-host,
# ep-nvlink).
# AGAIN=3: after a search that found something so many rounds of the next start (from the cache) and of plain NCCL, in
# turns.
set -u
out=$1 regime=${2:-time-sliced} kind=${3:-fsdp}
shift $(($# < 3 ? $# : 3))
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export OMP_NUM_THREADS=2
where='one GPU' is_mps=
case $regime in mps | one-node) is_mps=yes ;; two-gpus) where='2 GPUs' ;; esac
if [ "$regime" = one-node ]; then
    export NCCL_MULTI_RANK_GPU_ENABLE=1
    kind=one-node what='4 ranks on one GPU as one node, MPS; job: fsdp'
elif [ "$kind" = copy-engines ]; then
    export FSDP_COPY_ENGINE=1
    what='2 ranks on 2 GPUs as one node, NVLink; job: fsdp, T = 4096, 4 layers, buffers in symmetric windows'
elif [ "$kind" = ep-host ] || [ "$kind" = ep-nvlink ]; then
    [ "$kind" = ep-nvlink ] || export NCCL_P2P_DISABLE=1
    what="2 ranks on 2 GPUs as one node, AlltoAll; job: $kind"
else
    export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
    what="2 ranks on $where as 2 nodes over loopback sockets, $regime; job: $kind"
fi
if [ "$is_mps" ]; then
    export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mpslog
    mkdir -p /tmp/mps /tmp/mpslog
    nvidia-cuda-mps-control -d
    python3 -c "import torch; torch.zeros(1, device='cuda')"
    sleep 2 # ranks that come before the server is ready fail, and leave it unusable
fi
here=$(dirname "$(readlink -f "$0")")
torchrun=(python3 -m torch.distributed.run --standalone --nproc-per-node 2)
as_nodes=(--no-python sh -c 'NCCL_HOSTID=node$RANK exec python3 "$0" "$@"')
case $kind in
fsdp) job=("${torchrun[@]}" "$here/jobs/fsdp_nodes.py" --as-nodes --layers 4 --tokens 2048 --steps 12) ;;
fsdp-4096) job=("${torchrun[@]}" "$here/jobs/fsdp_nodes.py" --as-nodes --hidden 4096 --layers 2 --tokens 4096 --steps 12) ;;
fsdp-32768) job=("${torchrun[@]}" "$here/jobs/fsdp_nodes.py" --as-nodes --hidden 4096 --layers 1 --tokens 32768 --steps 12) ;;
copy-engines) job=("${torchrun[@]}" "$here/jobs/fsdp.py" --layers 4 --tokens 4096 --steps 40) ;;
ddp) job=("${torchrun[@]}" "${as_nodes[@]}" "$here/jobs/ddp.py" --layers 2 --tokens 2048 --steps 12) ;;
one-node) job=(sh "$here/jobs/ranks.sh" 4 "$here/jobs/fsdp_nodes.py" --layers 4 --tokens 2048 --steps 60) ;;
ep) job=("${torchrun[@]}" "${as_nodes[@]}" "$here/jobs/ep_two_batch.py" --layers 1 --tokens 8192 --steps 12) ;;
ep-host) job=(sh "$here/jobs/ranks.sh" 2 "$here/jobs/ep_two_batch.py" --layers 1 --tokens 4096 --steps 45) ;;
ep-nvlink) job=(sh "$here/jobs/ranks.sh" 2 "$here/jobs/ep_two_batch.py" --layers 1 --tokens 16384 --steps 45) ;;
esac
echo "regime: $what"
python3 -m lagom tune --out "$out" --metric '"ms": ([0-9.]+)' --samples 7 "$@" -- "${job[@]}"
code=$?
again=${AGAIN:-0}
if [ "$again" != 0 ] && [ ! -f "$out/config.lagom" ]; then
    echo "the search has found nothing, so the next start would be plain NCCL: none is run" >&2
    again=0
fi
for ((round = 1; round <= again; round++)); do
    echo "again, round $round: with what was found"
    python3 -m lagom run --config "$out/config.lagom" --dir "$out/again-$round" -- "${job[@]}"
    echo "again, round $round: plain NCCL"
    LAGOM_CACHE=off python3 -m lagom run --mode off --dir "$out/plain-$round" -- "${job[@]}"
done
[ -z "$is_mps" ] || echo quit | nvidia-cuda-mps-control
exit $code
