#!/bin/bash
# Predictions on one picture beside PyTorch's and onnxruntime's, and the time to the first one.
#
# Builds the release program, finds or installs the peers (bench/python.sh) and runs bench/predict.py, which
# says what is measured; arguments go there. Fails when a bound is broken.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/python.sh

cmake --preset release >/dev/null
cmake --build --preset release --parallel "${JOBS:-$(nproc)}" --target der_cli der_bench >/dev/null
python=$(bench_python onnx onnxruntime)
exec python3 bench/predict.py --peer "$python" "$@"
