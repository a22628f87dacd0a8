#!/usr/bin/env bash
# `lagom tune` on one GPU whose two ranks are two nodes over loopback sockets (bundled NCCL): how start settings are found
# from nothing. A stand-in: it says nothing about the speed of several GPUs. Times are those of the regime it prints.
#
#   benchmarks/start_settings.sh OUT [time-sliced|mps] [options of lagom tune]
set -u
out=$1 regime=${2:-time-sliced}
shift 2
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 OMP_NUM_THREADS=2
if [ "$regime" = mps ]; then
    export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mpslog
    mkdir -p /tmp/mps /tmp/mpslog
    nvidia-cuda-mps-control -d
    python3 -c "import torch; torch.zeros(1, device='cuda')"
    sleep 2 # ranks that come before the server is ready fail, and leave it unusable
fi
here=$(dirname "$(readlink -f "$0")")
job=(python3 -m torch.distributed.run --standalone --nproc-per-node 2 "$here/jobs/fsdp_nodes.py"
    --as-nodes --layers 4 --tokens 2048 --steps 12)
echo "regime: 2 ranks on one GPU as 2 nodes over loopback sockets, $regime"
python3 -m lagom tune --out "$out" --metric '"ms": ([0-9.]+)' --samples 7 "$@" -- "${job[@]}"
code=$?
if [ -e "$out/config.lagom" ]; then # the next start: no search
    python3 -m lagom run --dir "$out/replay" --config "$out/config.lagom" -- "${job[@]}"
fi
[ "$regime" != mps ] || echo quit | nvidia-cuda-mps-control
exit $code
