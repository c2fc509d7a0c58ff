#!/bin/bash
# The paper's CIFAR-100 rows on a GPU, as far as the time goes; called again it goes on where it stopped.
#
#     bench/paper_runs.sh --data DIR --out DIR [--seconds N] [--at-once N] [--der PROGRAM] [--list] [-- OPTIONS OF der]
#
# DIR of --data is CIFAR-100, DIR of --out the folder of all runs, beginning with those recorded in docs/results;
# `der reproduce` shares them between tables, uses finished ones again and continues what was interrupted from its
# last saved epoch. Rows are in the order of what they are worth and cost, first all with one class order. After N seconds (540) the runs in progress are
# asked to stop, and the script ends with 3; with 0 when every row is done, with 1 when some failed. Tables of what there is lie in the folder
# of the runs. --at-once 3 has as many rows run side by side (1), which takes less time with small networks where a
# server of CUDA's MPS is running (`nvidia-cuda-mps-control -d`).
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
data='' out='' seconds=540 at_once=1 list=false der=$here/build/cuda/der
while [ $# -gt 0 ]; do
    case $1 in
    --data) data=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --at-once) at_once=$2; shift 2 ;;
    --der) der=$2; shift 2 ;;
    --list) list=true; shift ;;
    --) shift; break ;;
    *) sed -n '4p' "$0" >&2; exit 2 ;;
    esac
done

# table : orders : row. T5 with pruning has the upper bound of the classifier as well.
rows=(
    "T1:1,2,3:DER without pruning, 10 steps"
    "T1:1,2,3:DER, 10 steps"
    "T4:1:neither"
    "T4:1:expansion"
    "T5:1:DER"
    "T8:1:DER, 2 steps"
    "T8:1:DER without pruning, 2 steps"
    "T7:1:DER, 5 steps"
    "T7:1:DER without pruning, 5 steps"
    "T8:1:DER, 5 steps"
    "T8:1:DER without pruning, 5 steps"
    "T2:1:DER, 2 steps"
    "T2:1:DER without pruning, 2 steps"
    "T1:1:DER, 5 steps"
    "T1:1:DER without pruning, 5 steps"
    "T8:1:DER, 10 steps"
    "T8:1:DER without pruning, 10 steps"
    "T2:1:DER, 5 steps"
    "T2:1:DER without pruning, 5 steps"
    "T7:1:DER, 10 steps"
    "T7:1:DER without pruning, 10 steps"
    "T2:1:DER, 10 steps"
    "T2:1:DER without pruning, 10 steps"
    "fig1:1:lambda_s=0.25"
    "fig1:1:lambda_s=0.5"
    "fig1:1:lambda_s=0.75"
    "fig1:1:lambda_s=1.5"
    "T7:1:DER, 20 steps"
    "T7:1:DER without pruning, 20 steps"
    "T1:1:DER, 20 steps"
    "T1:1:DER without pruning, 20 steps"
    "T7:1:DER, 50 steps"
    "T1:1:DER, 50 steps"
    "T5:1:DER without pruning"
    "T1:1:iCaRL, 10 steps"
    "T1:1:BiC, 10 steps"
    "T1:1:WA, 10 steps"
    "T7:1:iCaRL, 10 steps"
    "T7:1:BiC, 10 steps"
    "T7:1:WA, 10 steps"
    "T2:1:iCaRL, 5 steps"
    "T2:1:BiC, 5 steps"
    "T2:1:WA, 5 steps"
    "T1:1:iCaRL, 5 steps"
    "T1:1:BiC, 5 steps"
    "T1:1:WA, 5 steps"
    "T4:2,3:neither"
    "T4:2,3:expansion"
    "T8:2,3:DER, 2 steps"
    "T8:2,3:DER without pruning, 2 steps"
    "T7:2,3:DER, 5 steps"
    "T7:2,3:DER without pruning, 5 steps"
    "T8:2,3:DER, 5 steps"
    "T8:2,3:DER without pruning, 5 steps"
    "T2:2,3:DER, 2 steps"
    "T2:2,3:DER without pruning, 2 steps"
    "T1:2,3:DER, 5 steps"
    "T1:2,3:DER without pruning, 5 steps"
    "T8:2,3:DER, 10 steps"
    "T8:2,3:DER without pruning, 10 steps"
    "T2:2,3:DER, 5 steps"
    "T2:2,3:DER without pruning, 5 steps"
    "T7:2,3:DER, 10 steps"
    "T7:2,3:DER without pruning, 10 steps"
    "T2:2,3:DER, 10 steps"
    "T2:2,3:DER without pruning, 10 steps"
    "T7:2,3:DER, 20 steps"
    "T7:2,3:DER without pruning, 20 steps"
    "T1:2,3:DER, 20 steps"
    "T1:2,3:DER without pruning, 20 steps"
    "T7:2,3:DER, 50 steps"
    "T1:2,3:DER, 50 steps"
)
if [ -z "$data" ] || [ -z "$out" ]; then
    sed -n '4p' "$0" >&2
    exit 2
fi

# reproduce ENTRY OPTIONS...: one entry of the list through the program.
reproduce() {
    local table=${1%%:*} rest=${1#*:}
    shift
    "${limit[@]}" "$der" reproduce "$table" --data "$data" --out "$out" --row "${rest#*:}" \
        --orders "${rest%%:*}" --device "${DER_DEVICE:-cuda}" --precision "${DER_PRECISION:-bf16}" \
        --threads "${DER_THREADS:-8}" "$@"
}

# What is finished by the records of docs/results (tools/results.py) is not run again.
mkdir -p "$out" || exit 1
for record in "$here"/docs/results/runs/*; do
    if grep -qs '"event":"end"' "$record/metrics.jsonl" && [ ! -e "$out/$(basename "$record")" ]; then
        cp -r "$record" "$out"
    fi
done

limit=()
end=$(($(date +%s) + seconds))
n_running=0 n_failed=0 is_late=false

# One of those that run, and what came of it.
wait_for_one() {
    if ! wait -n; then
        if [ "$(date +%s)" -ge $((end - 20)) ]; then
            is_late=true
        else
            n_failed=$((n_failed + 1))
        fi
    fi
    n_running=$((n_running - 1))
}

run_row() { # ENTRY OPTIONS...
    local status
    echo "== $1"
    reproduce "$@" --quiet
    status=$?
    [ $status -eq 0 ] || [ "$(date +%s)" -ge $((end - 20)) ] ||
        echo "paper_runs: '$1' ended with status $status; the next row is tried" >&2
    return $status
}

for entry in "${rows[@]}"; do
    limit=()
    states=$(reproduce "$entry" --dry-run) || exit 1
    pending=$(grep -vc '^done' <<<"$states")
    if $list; then
        echo "$pending to do: $entry"
        continue
    fi
    [ "$pending" -gt 0 ] || continue
    [ $n_running -lt "$at_once" ] || wait_for_one
    left=$((end - $(date +%s)))
    [ $left -gt 20 ] || is_late=true
    $is_late && break
    # In the foreground `timeout` sends the signal once. A second one would end the program in the middle of its work,
    # which under MPS takes other processes' work with it.
    limit=(timeout --foreground --signal=INT --kill-after=15 "$left")
    run_row "$entry" "$@" &
    n_running=$((n_running + 1))
done
while [ $n_running -gt 0 ]; do
    wait_for_one
done
$is_late && exit 3
if [ $n_failed -gt 0 ]; then
    echo "paper_runs: $n_failed rows failed" >&2
    exit 1
fi
$list || echo "all rows are done"
