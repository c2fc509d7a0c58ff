#!/bin/bash
# run_test.sh RESULT COMMAND...: runs one test program and counts its cases.
#
# The program speaks TAP (cmocka does on request, scripts by tests/support/test-lib.sh). The count
# "passed failed skipped", and the seconds it took, goes to RESULT.count, the output to RESULT.log. A program that dies, or
# that announces more cases than it reports, has failed, whatever it printed before.
set -u
result=$1
shift
mkdir -p "$(dirname "$result")"
# Should this script be killed, by ctest's time limit for one, this count remains.
echo "0 1 0 0" >"$result.count"

export CMOCKA_MESSAGE_OUTPUT=TAP
# Crashes belong to the sanitizer, which shows where and ends the program. cmocka would go on with the next case, and
# one that crashed between OpenMP's threads has left them in such a state that another may wait for them for ever.
crashes=handle_segv=2:handle_sigbus=2:handle_sigill=2:handle_sigfpe=2
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0:allocator_may_return_null=1:$crashes}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
start=$(date +%s.%N)
"$@" >"$result.log" 2>&1 </dev/null
status=$?
seconds=$(echo "$(date +%s.%N) $start" | awk '{ printf "%.1f", $1 - $2 }')

count=$(awk -v status="$status" '
    /^1\.\.[0-9]+/                { split($0, plan, /\.\./); want += plan[2] + 0; next }
    /^(not )?ok .*# *(SKIP|skip)/ { skipped++; next }
    /^ok /                        { passed++; next }
    /^not ok /                    { failed++; next }
    END {
        met = passed + failed + skipped
        if (met < want)
            failed += want - met
        else if (met == 0 || (status != 0 && failed == 0))
            failed++
        print passed + 0, failed + 0, skipped + 0
    }' "$result.log")
echo "$count $seconds" >"$result.count"

read -r _ failed _ <<<"$count"
if [ "$failed" -gt 0 ] || [ "$status" -ne 0 ]; then
    cat "$result.log"
    echo "exit status $status"
    exit 1
fi
