#!/bin/bash
# der_twin.sh DATA [...]: does DER learn what a PyTorch twin of it learns, on real data?
#
# DATA is a folder with the binary distribution of CIFAR-100. Builds the release program, finds or
# installs PyTorch (bench/python.sh) and runs bench/der_twin.py, which says what is compared and how;
# further arguments go there. Fails when the two differ. Takes hours: every run is two steps of 30
# epochs of the 32-layer network.
set -euo pipefail
if [ $# -lt 1 ]; then
    echo "usage: bench/der_twin.sh DATA [arguments of bench/der_twin.py]" >&2
    exit 2
fi
data=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
. bench/python.sh

cmake --preset release >/dev/null
cmake --build --preset release --parallel "${JOBS:-$(nproc)}" >/dev/null
python=$(bench_python)
exec python3 bench/der_twin.py --peer "$python" "$data" "$@"
