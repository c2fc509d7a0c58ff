#!/bin/bash
# A run that is killed (SIGKILL) at random moments and resumed ends with the same bytes.
. "$(dirname "$0")/../support/test-lib.sh"
. "$root/tests/support/runs.sh"

start_reference
for i in 1 2 3; do
    moment=$(random_moment "$duration")
    echo "# kill $i after $moment s"
    killed_after "$moment" "$DER" train "${run_flags[@]}" --out "run$i"
    expect_code 0 "run $i goes on after $moment s" "$DER" train "${run_flags[@]}" --out "run$i" --resume
    check "and ends with the same bytes" same_run whole "run$i"
done

done_testing
