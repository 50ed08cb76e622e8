#!/usr/bin/env bash
# The GPU bench kit: correctness first, then times beside the peers that are there. One command, under
# 8 minutes on an H200:
#
#     bench/gpu/run.sh                 on cuda:0; results under bench/runs/<date>-<gpu>-<commit>/
#     bench/gpu/run.sh --dry           the same path with small models, no result kept
#     bench/gpu/run.sh --device cpu    on another device
#
# EGGINE names the binary (default: target/release/eggine, built if it is missing and cargo is there);
# PYTHON the interpreter with torch, if there is one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}
eggine=${EGGINE:-$root/target/release/eggine}
if [ ! -x "$eggine" ]; then
    command -v cargo > /dev/null || { echo "no eggine at $eggine: build it, or name it in EGGINE" >&2; exit 2; }
    (cd "$root" && cargo build --release -p eggine)
fi
exec "$python" "$here/bench.py" --eggine "$eggine" --root "$root" "$@"
