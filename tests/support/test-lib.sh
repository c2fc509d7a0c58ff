# Sourced by test scripts: runs cases in a folder of their own and reports in TAP.
#
#     . "$(dirname "$0")/../support/test-lib.sh"
#     expect_code 2 "unknown command is a usage error" "$DER" trian
#     check "and it says which" grep -q trian err
#     done_testing
#
# shellcheck shell=bash
set -u
export DER_CACHE_DIR= # tests leave the folder of the user alone
export TERM=xterm     # whatever they are run from
test_dir=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2034 # for the scripts
root=$(cd "$test_dir/../.." && pwd)
trash=$(mktemp -d)
trap 'rm -rf "$trash"' EXIT
cd "$trash" || exit 1
n_cases=0
n_failed=0

report() { # STATUS NAME FILES...: one TAP line, and the files if it failed
    n_cases=$((n_cases + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n_cases - $2"
    else
        n_failed=$((n_failed + 1))
        echo "not ok $n_cases - $2"
        shift 2
        sed 's/^/# /' "$@"
    fi
}

check() { # NAME COMMAND...: the command succeeds; leaves out and err of the step before alone
    local name=$1
    shift
    "$@" >check.out 2>&1
    report $? "$name" check.out
}

check_not() { # NAME COMMAND...: the command, grep or cmp or test, says no; leaves out and err alone
    local name=$1
    shift
    "$@" >check.out 2>&1
    [ $? -eq 1 ]
    report $? "$name" check.out
}

check_fails() { # NAME COMMAND...: the command fails, and not by crashing; writes out and err
    local name=$1 code
    shift
    "$@" >out 2>err
    code=$?
    [ "$code" -ne 0 ] && [ "$code" -lt 126 ]
    report $? "$name" out err
}

expect_code() { # CODE NAME COMMAND...: the exit status is CODE; writes out and err
    local want=$1 name=$2 code
    shift 2
    "$@" >out 2>err
    code=$?
    [ "$code" -eq "$want" ] || echo "exit status $code, want $want" >>err
    [ "$code" -eq "$want" ]
    report $? "$name" out err
}

one_line() { # FILE PATTERN: exactly one line, starting with "der: ", that matches
    [ "$(wc -l <"$1")" -eq 1 ] && grep -q '^der: ' "$1" && grep -q -- "$2" "$1"
}

skip() { # NAME REASON
    n_cases=$((n_cases + 1))
    echo "ok $n_cases - $1 # SKIP $2"
}

done_testing() {
    echo "1..$n_cases"
    [ "$n_failed" -eq 0 ]
    exit
}
