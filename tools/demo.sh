#!/bin/bash
# The demonstration behind `make demo`: set-up, build, and a narrow residual network that learns
# Fashion-MNIST (or, where that package cannot be had, the built-in procedural images).
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh demo
mkdir -p build
echo "demo: building (log in build/demo.log)"
{
    cmake --preset release -DDER_TESTS=OFF
    cmake --build --preset release --parallel "$(nproc)"
} >build/demo.log 2>&1 || {
    tail -n 30 build/demo.log >&2
    exit 1
}

data=/usr/share/datasets/fashion-mnist
if [ ! -d "$data" ]; then
    echo "demo: Fashion-MNIST (package dataset-fashion-mnist) is not there; using procedural images"
    data=synth:classes=10,train=600,test=100,size=28,seed=1
fi
echo "demo: a 32-layer residual network of half the usual width, 600 images of each of 10 classes"
build/der train --data "$data" --net resnet32 --width 0.5 --per-class 600 --epochs 10 --batch 32 \
    --lr 0.1 --threads 2
