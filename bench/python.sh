# shellcheck shell=bash
# For sourcing: bench_python [PACKAGE...] prints a python that has PyTorch, numpy and the packages, for
# scripts that compare.
#
# It is the one that DER_BENCH_PYTHON names, or that of a virtual environment of its own,
# build/bench-venv, where the newest ones are installed first if need be; PyPI's default build of PyTorch
# takes several GB. Wants to be called in the root of the repository.

# has_packages PYTHON PACKAGE...
has_packages() {
    local python=$1
    shift
    "$python" -c 'import importlib, sys
for name in sys.argv[1:]: importlib.import_module(name)' "$@" >/dev/null 2>&1
}

bench_python() {
    local venv=$PWD/build/bench-venv
    local python=${DER_BENCH_PYTHON:-$venv/bin/python}
    set -- torch numpy "$@"
    if ! has_packages "$python" "$@"; then
        if [ -n "${DER_BENCH_PYTHON:-}" ]; then
            echo "bench: $python does not have all of: $*" >&2
            return 1
        fi
        echo "bench: installing into build/bench-venv: $*" >&2
        python3 -m venv "$venv" >&2 || return 1
        "$venv/bin/python" -m pip install --quiet --upgrade "$@" >&2 || return 1
    fi
    echo "$python"
}
