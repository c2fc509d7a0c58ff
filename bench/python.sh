# shellcheck shell=bash
# For sourcing: bench_python prints a python that has PyTorch and numpy, for scripts that compare.
#
# It is the one that DER_BENCH_PYTHON names, or that of a virtual environment of its own,
# build/bench-venv, where the newest PyTorch is installed first if need be; PyPI's default build
# takes several GB. Wants to be called in the root of the repository.

has_torch() {
    "$1" -c 'import numpy, torch' >/dev/null 2>&1
}

bench_python() {
    local venv=$PWD/build/bench-venv
    local python=${DER_BENCH_PYTHON:-$venv/bin/python}
    if ! has_torch "$python"; then
        if [ -n "${DER_BENCH_PYTHON:-}" ]; then
            echo "bench: $python has no torch and numpy" >&2
            return 1
        fi
        echo "bench: installing the newest PyTorch into build/bench-venv" >&2
        python3 -m venv "$venv" >&2 || return 1
        "$venv/bin/python" -m pip install --quiet --upgrade torch numpy >&2 || return 1
    fi
    echo "$python"
}
