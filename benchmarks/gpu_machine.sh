#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measurements on a machine with GPUs that is lent for minutes and reaches no package registry.
#
#   benchmarks/gpu_machine.sh pack [LIBNCCL.so.xz]     # here, on a commit of main: .carry/gpu gets what is missing there
#   benchmarks/gpu_machine.sh SECONDS PART...          # there, with .carry/gpu: each part until its time is up
#
# Parts: checks (tests of a tuned job's next start with another port, of copies in a profile, of strands; with one GPU
# they need LIBNCCL), gpu-tests:NAME,NAME (tests/gpu/test_NAME.py), steps, strands, strands-host, strands-tuned,
# nodes-fsdp, nodes-ddp, ep-host and ep-nvlink (lagom tune on AlltoAll; then AGAIN next starts and plain NCCL in turns),
# rows:NAME,NAME (of benchmarks.matrix), whole:NAME,NAME (of benchmarks.whole_runs; ROUNDS: how many).
# A part that is called again on the same machine continues. Results are copied to $OUT. SECONDS are those of all parts; a
# part gets what those before it have left. SEARCH: budget of lagom tune in the parts nodes-* and ep-* (ep-host takes 500
# s; its next starts come in a second call).
# REHEARSE=1: tiny strands over gloo instead, on a machine without GPUs.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")/..
carried=$here/.carry/gpu work=${GPU_MACHINE_WORK:-/tmp/measured}

pack() {
    if [ -n "$(git -C "$here" status --porcelain)" ]; then
        echo "commit first: a result names the commit that it was measured at" >&2
        exit 2
    fi
    if ! git -C "$here" merge-base --is-ancestor HEAD main; then
        echo "merge into main first: a commit of another branch may be rewritten, and a result would name none" >&2
        exit 2
    fi
    rm -rf "$carried"
    mkdir -p "$carried/wheels"
    git -C "$here" rev-parse --short=8 HEAD >"$carried/commit"
    [ $# = 0 ] || cp "$1" "$carried/libnccl.so.xz"
    # what lagom needs and an image with PyTorch as a rule has not
    "${PYTHON:-python3}" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        -d "$carried/wheels" cffi pycparser annotated-types typing-inspection \
        "pydantic==$(release pydantic)" "pydantic-core==$(release pydantic-core)"
    ls "$carried" "$carried/wheels"
}

release() { # of a package in this environment: these two fit each other only as a pair
    "${PYTHON:-python3}" -c 'import importlib.metadata as m; print(m.version("'$1'"))'
}

prepare() {
    [ "${REHEARSE:-}" ] || python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site \
        "$carried"/wheels/*.whl
    export PYTHONPATH=$here:/tmp/site LAGOM_COMMIT PYTHONUNBUFFERED=1 OMP_NUM_THREADS=4
    export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
    LAGOM_COMMIT=$(cat "$carried/commit")
    python3 setup.py --quiet native
    mkdir -p "$work"
    [ -f "$work/libnccl.so.2" ] || [ ! -f "$carried/libnccl.so.xz" ] || xz -dc "$carried/libnccl.so.xz" >"$work/libnccl.so.2"
    nccl=()
    [ ! -f "$work/libnccl.so.2" ] || nccl=(--nccl-230 "$work/libnccl.so.2")
    gpus=2 rehearsal=(--gloo --model tiny --tokens 64 --each 1 --layers 1)
    [ "${REHEARSE:-}" ] || { nvidia-smi -L && gpus=$(nvidia-smi -L | wc -l) rehearsal=(); }
}

# Seconds for a command that was told when to end: what is ended from outside loses what it had not kept.
GRACE=12
left() { echo $((ends - SECONDS)); }

within() { # a command until the time is up; what it printed lately stays in its log
    local name=$1
    shift
    echo "== $name, $(left) s left: $*"
    timeout -k 5 $(($(left) + GRACE)) "$@" 2>&1 | tee -a "$work/$name.log" || echo "== $name ended with ${PIPESTATUS[0]}"
}

stacks() { # JOB, FILE, options of the job
    local job=$1 name=$2
    shift 2
    within "$name" python3 -m "benchmarks.jobs.$job" --ranks "$gpus" --out "$work/$name.json" --seconds "$(left)" "$@" \
        "${rehearsal[@]}"
}

part() {
    case $1 in
    checks)
        local shared=()
        [ "$gpus" -gt 1 ] || shared=(LAGOM_TEST_SHARED_GPU=2 "LAGOM_TEST_NCCL_230=$work/libnccl.so.2")
        within checks env "${shared[@]}" LAGOM_TEST_EVIDENCE="$work/checks.json" python3 -m pytest -p no:xdist --timeout 200 \
            tests/gpu/test_cached_start.py tests/gpu/test_capture.py tests/gpu/test_parallel_operators.py \
            -k "port or copies_between or strands"
        ;;
    steps)
        stacks tensor_parallel_step steps --model 8b,70b --each 40
        stacks tensor_parallel_step steps --model 8b --tokens 2048 --each 30
        stacks tensor_parallel_step steps --model 8b --tokens 2048 --each 30 --graphs
        stacks tensor_parallel_step steps --model 8b --each 40 --dtensor
        ;;
    strands)
        stacks strands strands --model 8b --tokens 8192 --each 75
        stacks strands strands --model 8b --tokens 2048 --each 30 --graphs
        stacks strands strands --model 70b --each 60 --arms weights_moved,turns,turns_abreast,two_streams,turns_copies
        ;;
    strands-host)
        export NCCL_P2P_DISABLE=1
        stacks strands strands-host --model 8b --each 60 --arms weights_moved,turns,turns_abreast,two_streams
        stacks strands strands-host --model 70b --each 60 --arms weights_moved,turns,turns_abreast
        unset NCCL_P2P_DISABLE
        ;;
    strands-tuned) # is there something to gain on top, and by the caps of DHelix and Liger?
        export NCCL_P2P_DISABLE=1
        within strands-tuned python3 -m lagom bench --arms stock,auto,dhelix,liger --out "$work/strands-tuned" \
            --budget "$(left)" -- python3 -m torch.distributed.run --standalone --nproc-per-node "$gpus" \
            benchmarks/jobs/tp_strands.py --schedule turns --micro 4 --steps 4000
        cp "$work/strands-tuned/bench.json" "$work/strands-tuned.json" || true
        unset NCCL_P2P_DISABLE
        ;;
    gpu-tests:*)
        local names=${1#gpu-tests:} release=() files
        [ ! -f "$work/libnccl.so.2" ] || release=("LAGOM_TEST_NCCL_230=$work/libnccl.so.2")
        IFS=, read -ra files <<<"$names"
        files=("${files[@]/#/tests/gpu/test_}")
        within gpu-tests env "${release[@]}" LAGOM_TEST_EVIDENCE="$work/gpu-tests-$names.json" python3 -m pytest -v --durations 0 \
            -p no:xdist --timeout 400 "${files[@]/%/.py}"
        ;;
    ep-host | ep-nvlink)
        within "$1" env AGAIN="${AGAIN:-4}" benchmarks/start_settings.sh "$work/$1" two-gpus "$1" --samples 14 --seed 2 \
            --run-limit 60 --budget "${SEARCH:-560s}"
        cp "$work/$1/bench.json" "$work/$1.json" || true
        ;;
    nodes-fsdp | nodes-ddp)
        within "$1" python3 -m benchmarks.nodes_start "${1#nodes-}" --out "$work/$1" --gpus "$gpus" --search "${SEARCH:-330s}" \
            --seconds "$(left)"
        cp "$work/$1/nodes_start.json" "$work/$1.json" || true
        ;;
    whole:*) # whole processes, which start together: what a search gives and costs
        within whole python3 -m benchmarks.whole_runs --gpus "$gpus" --jobs "${1#whole:}" --rounds "${ROUNDS:-5}" \
            --out "$work/whole.json" --budget "$(left)" "${nccl[@]}"
        ;;
    rows:*)
        within rows python3 -m benchmarks.matrix --gpus "$gpus" --rows "${1#rows:}" --out "$work/rows.json" \
            --budget "$(left)" "${nccl[@]}"
        ;;
    *)
        echo "no part is named $1" >&2
        exit 2
        ;;
    esac
}

if [ "${1:-}" = pack ]; then
    shift
    pack "$@"
    exit
fi
ends=$1
shift
prepare
trap 'cp "$work"/*.json "$work"/*.log "$OUT/" 2>/dev/null || true' EXIT
for one in "$@"; do
    part "$one"
done
