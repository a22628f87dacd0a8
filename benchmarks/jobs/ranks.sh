#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Start N ranks of a script on this machine: what torchrun does, without its own five seconds of start and end.
#   ranks.sh N SCRIPT [ARGUMENTS]
count=$1
shift
export WORLD_SIZE="$count" LOCAL_WORLD_SIZE="$count" MASTER_ADDR=127.0.0.1 MASTER_PORT=$((29500 + ${LAGOM_TRIAL:-0}))
trap 'kill $ranks 2>/dev/null' TERM INT
ranks=
rank=0
while [ "$rank" -lt "$count" ]; do
    RANK=$rank LOCAL_RANK=$rank python3 "$@" &
    ranks="$ranks $!"
    rank=$((rank + 1))
done
code=0
for rank in $ranks; do
    wait "$rank" || code=$?
done
exit $code
