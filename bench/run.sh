#!/bin/bash
# Builds the release program, finds or installs PyTorch, and runs bench/run.py.
#
# Which python is used, and how to choose it, is in bench/python.sh. Arguments go to run.py.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/python.sh
jobs=${JOBS:-$(nproc)}

cmake --preset release >/dev/null
cmake --build --preset release --parallel "$jobs" --target der_bench >/dev/null
# The build against oneDNN 3.x is measured too where tools/fetch_dnnl3.sh has left one.
if [ -d build/deps/dnnl3 ]; then
    cmake --preset dnnl3 >/dev/null
    cmake --build --preset dnnl3 --parallel "$jobs" --target der_bench >/dev/null
fi

python=$(bench_python)
exec python3 bench/run.py --peer "$python" "$@"
