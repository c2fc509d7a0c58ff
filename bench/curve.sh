#!/bin/bash
# curve.sh DATA [...]: does training follow PyTorch's loss curve, on real data?
#
# DATA is a folder with the binary distribution of CIFAR-100. Builds the release program, finds or
# installs PyTorch (bench/python.sh) and runs bench/curve.py, which says what is compared and how;
# further arguments go there. Fails when the curves differ.
set -euo pipefail
if [ $# -lt 1 ]; then
    echo "usage: bench/curve.sh DATA [arguments of bench/curve.py]" >&2
    exit 2
fi
data=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
. bench/python.sh

cmake --preset release >/dev/null
cmake --build --preset release --parallel "${JOBS:-$(nproc)}" --target der_curve >/dev/null
python=$(bench_python)
exec python3 bench/curve.py --peer "$python" "$data" "$@"
