#!/bin/bash
# The demonstration behind `make demo`: set-up, build, then Fashion-MNIST in five steps of two classes (or,
# where that package cannot be had, the built-in procedural images), learnt three times by a small network:
#
#   DER          grows by an extractor a step, pruned to 20,000 parameters
#   fine-tuning  one network, trained on, with the same memory
#   joint        one network that sees all images of all classes at the end: the bound
#
# Ends in a table and a page, and fails if DER is not 8 points above fine-tuning after the last step.
#
#   tools/demo.sh                        set-up, build, runs in build/demo, page in build/demo.html
#   tools/demo.sh PROGRAM DIR [--short]  the runs and the page alone, by that program and in that folder; short: few
#                                        procedural images and epochs, from which nothing follows (for tests)
set -euo pipefail
margin=8
der=build/der
folder=build
is_short=false
if [ $# -ge 2 ]; then
    der=$1
    folder=$2
    [ "${3:-}" = --short ] && is_short=true
else
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
fi

data=/usr/share/datasets/fashion-mnist
preset=fashion-mnist-5
# With so few iterations masks harden early, so that the rest has time to follow.
settings=(--set per_class=300 --set width=0.5 --set batch=32 --set epochs=12 --set classifier_epochs=12
    --set lr=0.05 --set hard_epoch=5 --threads 2)
if [ ! -d "$data" ]; then
    echo "demo: Fashion-MNIST (package dataset-fashion-mnist) is not there; using procedural images"
    data=synth:classes=10,train=300,test=100,size=28,seed=1
fi

if $is_short; then
    data=synth:classes=10,train=10,test=6,size=28,seed=1
    settings+=(--set per_class=10 --set epochs=2 --set classifier_epochs=2 --set hard_epoch=1)
    margin=-100
fi

runs=$folder/demo
rm -rf "$runs"
mkdir -p "$runs"
train() { # NAME FLAGS...
    local name=$1
    shift
    echo
    echo "demo: $name"
    "$der" train --preset "$preset" --data "$data" --out "$runs/$name" "${settings[@]}" "$@"
}
echo "demo: a 32-layer residual network of half the usual width, ten classes in five steps of two,"
echo "demo: 300 images of each class, 100 old images kept in all"
train der --method der --target-params 20k
train finetune --method finetune
train joint --method joint --joint-steps last

# value RUN STEP KEY: a number of a step, empty where the run has none.
value() {
    sed -n "s/^{\"event\":\"step\",\"step\":$2,.*\"$3\":\([0-9.]*\).*/\1/p" "$runs/$1/metrics.jsonl"
}
echo
echo "after step                1       2       3       4       5"
for run in der finetune joint; do
    for key in top1 params; do
        printf '%-9s %-10s' "$run" "$([ "$key" = top1 ] && echo accuracy || echo parameters)"
        for step in 1 2 3 4 5; do
            number=$(value "$run" "$step" "$key")
            if [ -z "$number" ]; then
                printf '%8s' -
            elif [ "$key" = top1 ]; then
                printf '%7.1f%%' "$number"
            else
                printf '%8d' "$number"
            fi
        done
        echo
    done
done
echo "(accuracy over all classes learnt so far; parameters of all feature extractors)"
awk -v der="$(value der 5 top1)" -v finetune="$(value finetune 5 top1)" -v margin="$margin" 'BEGIN {
    printf "\nDER ends %.1f points above fine-tuning.\n", der - finetune
    exit der - finetune < margin
}' || {
    echo "demo: that is less than $margin points: something is wrong" >&2
    exit 1
}
"$der" report "$runs"/der "$runs"/finetune "$runs"/joint -o "$folder/demo.html" --quiet \
    --title "Ten classes in five steps"
echo "Settings and measurements are in $runs/*/config.json and metrics.jsonl."
echo "To look at: $(cd "$folder" && pwd)/demo.html"
