#!/bin/bash
# A run that is killed (SIGKILL) at random moments and resumed ends with the same bytes.
# labels: first
. "$(dirname "$0")/../support/test-lib.sh"
# shellcheck source=../support/runs.sh
. "$test_dir/../support/runs.sh"

start_reference
for i in 1 2 3; do
    random_moment $((n_lines - 1))
    killed_at "run$i" "$at_line" "$at_ms" "$DER" train "${run_flags[@]}" --out "run$i"
    expect_code 0 "a run killed $at_ms ms after line $at_line goes on" \
        "$DER" train "${run_flags[@]}" --out "run$i" --resume
    check "and ends with the same bytes" same_run whole "run$i"
done

done_testing
