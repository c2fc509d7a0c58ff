#!/bin/bash
# The same as t0101 with 200 kills, several in a row before a run may end; then the other methods, and a run that
# measures more than accuracy.
# labels: slow
. "$(dirname "$0")/../support/test-lib.sh"
# shellcheck source=../support/runs.sh
. "$test_dir/../support/runs.sh"

start_reference
n_kills=0
n_runs=0
while [ "$n_kills" -lt 200 ]; do
    n_runs=$((n_runs + 1))
    moments=""
    for _ in 1 2 3 4 5 6 7 8; do
        random_moment $((n_lines / 4))
        at_line=$((at_line + $(count_lines run)))
        killed_at run "$at_line" "$at_ms" "$DER" train "${run_flags[@]}" --out run --resume || break
        n_kills=$((n_kills + 1))
        moments="$moments $at_line+$at_ms"
    done
    expect_code 0 "run $n_runs goes on after kills at$moments" \
        "$DER" train "${run_flags[@]}" --out run --resume
    check "and ends with the same bytes" same_run whole run
    rm -rf run
done
echo "# $n_kills kills of $n_runs runs"

common=("${run_flags[@]}")
for variant in "--method finetune" "--method icarl" "--method wa" "--method bic" "--method joint" \
    "--method joint --joint-steps last" "--measure transfer --measure latency"; do
    read -ra extra <<<"$variant"
    run_flags=("${common[@]}" "${extra[@]}")
    rm -rf whole
    start_reference
    for _ in 1 2 3 4; do
        random_moment $((n_lines - 1))
        killed_at run "$at_line" "$at_ms" "$DER" train "${run_flags[@]}" --out run
        expect_code 0 "$variant: killed $at_ms ms after line $at_line, it goes on" \
            "$DER" train "${run_flags[@]}" --out run --resume
        check "and ends with the same bytes" same_run whole run
        rm -rf run
    done
done

done_testing
