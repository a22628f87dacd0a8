#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Clones HEAD into a temporary folder and runs `make demo` and `make test` there, with nothing of this checkout in reach.
# Usage: tests/contract/fresh_clone.sh [make target ...]      (default: demo test)
set -euo pipefail

repository=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

git clone --quiet "$repository" "$place/lagom"
cd "$place/lagom"
unset VIRTUAL_ENV PYTHONPATH MAKEFLAGS MAKEOVERRIDES MAKELEVEL
for target in "${@:-demo test}"; do
    for one in $target; do
        echo "== fresh clone of $(git rev-parse --short HEAD): make $one"
        SECONDS=0
        make "$one"
        echo "== make $one took $SECONDS s"
    done
done
git status --short --untracked-files=normal | sed 's/^/left behind: /'
test -z "$(git status --short)"
