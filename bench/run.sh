#!/bin/bash
# Builds the release program, finds or installs PyTorch, and runs bench/run.py.
#
# PyTorch lives in a virtual environment of its own, build/bench-venv; PyPI's default build takes
# several GB. DER_BENCH_PYTHON names a python that has it already. Arguments go to run.py.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
jobs=${JOBS:-$(nproc)}
venv=$root/build/bench-venv

has_torch() {
    "$1" -c 'import numpy, torch' >/dev/null 2>&1
}

cmake --preset release >/dev/null
cmake --build --preset release --parallel "$jobs" --target der_bench >/dev/null
# The build against oneDNN 3.x is measured too where tools/fetch_dnnl3.sh has left one.
if [ -d build/deps/dnnl3 ]; then
    cmake --preset dnnl3 >/dev/null
    cmake --build --preset dnnl3 --parallel "$jobs" --target der_bench >/dev/null
fi

python=${DER_BENCH_PYTHON:-$venv/bin/python}
if ! has_torch "$python"; then
    if [ -n "${DER_BENCH_PYTHON:-}" ]; then
        echo "bench: $python has no torch and numpy" >&2
        exit 1
    fi
    echo "bench: installing the newest PyTorch into build/bench-venv" >&2
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --upgrade torch numpy
fi
exec python3 bench/run.py --peer "$python" "$@"
