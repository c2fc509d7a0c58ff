#!/bin/bash
# fetch_exchange.sh DIR: a Python environment in DIR with the programs whose formats der writes and reads: onnx and
# onnxruntime, tensorboard, safetensors. Debian's numpy and torch are seen from it.
#
# Does nothing when DIR holds it already.
set -euo pipefail
dir=${1:?usage: fetch_exchange.sh DIR}
packages=(onnx onnxruntime tensorboard safetensors)
if /usr/bin/python3 -c 'import numpy, sys; sys.exit(numpy.__version__[:2] != "1.")' 2>/dev/null; then
    packages+=('numpy<2') # Debian 12's torch wants numpy 1
fi
stamp=$dir/.packages

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${packages[*]}" ]; then
    exit 0
fi

rm -rf "$dir"
mkdir -p "$(dirname "$dir")"
/usr/bin/python3 -m venv --system-site-packages "$dir"
"$dir/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "${packages[@]}"
"$dir/bin/python" -c 'import onnx, onnxruntime, safetensors, tensorboard.backend.event_processing.event_accumulator'
echo "${packages[*]}" >"$stamp"
