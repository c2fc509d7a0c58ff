#!/bin/bash
# Everything behind `make test`: set-up, builds, checks, tests by group, sanitizers, oneDNN 3.x.
#
#   tools/test.sh           what every change must pass
#   tools/test.sh --slow    the tests with the label "slow", in the release build
#
# Each test case and each check counts once per build that runs it. The last line is
# "N passed, N failed", after one with what was skipped, if anything; the exit status is 1 if any failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
jobs=$(nproc)
logs=build/logs
n_passed=0
n_failed=0
n_skipped=0
start=$(date +%s)

now() {
    date +%s.%N
}

row() { # NAME RESULT SECONDS
    printf '  %-22s %-36s %7.1f s\n' "$1" "$2" "$3"
}

line() { # NAME RESULT SINCE
    row "$1" "$2" "$(echo "$(now) $3" | awk '{ print $1 - $2 }')"
}

finish() {
    echo
    echo "total time: $(($(date +%s) - start)) s"
    if [ "$n_skipped" -gt 0 ]; then
        echo "skipped: $n_skipped"
    fi
    echo "$n_passed passed, $n_failed failed"
    [ "$n_failed" -eq 0 ]
    exit
}

# step NAME COMMAND...: a check or a build, counted as one.
step() {
    local name=$1 since log
    since=$(now)
    log=$logs/${name// /-}.log
    shift
    if "$@" >"$log" 2>&1; then
        n_passed=$((n_passed + 1))
        line "$name" ok "$since"
        return 0
    fi
    n_failed=$((n_failed + 1))
    line "$name" FAILED "$since"
    grep -vE '^(-- |\[ *[0-9]+%\])' "$log" | tail -n 60
    return 1
}

skip() { # NAME REASON
    n_skipped=$((n_skipped + 1))
    printf '  %-22s skipped: %s\n' "$1" "$2"
}

# Kernels take long to compile: CI, whose builds nobody runs on a GPU, compiles them once for each kind of GPU.
build() { # PRESET [CMAKE-BUILD-ARGUMENTS...]
    local preset=$1 gpus=''
    shift
    if [ "${CI:-false}" = true ]; then
        case $preset in
        dev) gpus=-DCMAKE_CUDA_ARCHITECTURES=80-real ;;
        release) gpus=-DCMAKE_CUDA_ARCHITECTURES=90 ;;
        esac
    fi
    step "build $preset" bash -c \
        "cmake --preset $preset $gpus && cmake --build --preset $preset --parallel $jobs $*"
}

build_dir() { # PRESET
    if [ "$1" = release ]; then echo build; else echo "build/$1"; fi
}

# run_tests PRESET GROUPS CTEST-ARGUMENTS...: the tests of groups, which are names with | between, all in one go, so that
# no core waits for the last test of a group. Cases are counted, and seconds of tests added up, by group.
run_tests() {
    local dir groups=$2 log=$logs/$1-tests.log since group passed failed skipped seconds status met=0
    dir=$(build_dir "$1")
    echo "tests, $1:"
    since=$(now)
    shift 2
    rm -rf "$dir/results"
    "${launcher[@]}" ctest --test-dir "$dir" -L "^($groups)\$" "$@" --output-on-failure -j "$jobs" \
        >"$log" 2>&1
    status=$?
    for group in "$dir"/results/*/; do
        [ -d "$group" ] || continue
        read -r passed failed skipped seconds < <(cat "$group"*.count 2>/dev/null |
            awk '{ p += $1; f += $2; s += $3; t += $4 } END { print p + 0, f + 0, s + 0, t + 0 }')
        n_passed=$((n_passed + passed))
        n_failed=$((n_failed + failed))
        n_skipped=$((n_skipped + skipped))
        met=$((met + failed))
        row "$(basename "$group")" "$passed passed, $failed failed, $skipped skipped" "$seconds"
    done
    # ctest failed although every count is fine: a program is missing. No count at all: there was nothing to run.
    if [ "$met" -eq 0 ] && { [ "$status" -ne 0 ] || [ ! -d "$dir/results" ]; }; then
        met=1
        n_failed=$((n_failed + 1))
    fi
    line "all of them" "$jobs at a time" "$since"
    if [ "$met" -gt 0 ]; then
        cat "$log"
    fi
}

# run_groups PRESET CTEST-ARGUMENTS...: every group there is. The tests of the tools do not
# depend on the build, so dev alone runs them; whole experiments and the documents are for release, as users run
# it, and so is what is installed, with a second look at its memory, as at the program and at what it says and fetches.
# Another oneDNN is for those who compute with it.
computing=(backend-cpu engine golden grad method model parity predict train)
run_groups() {
    local preset=$1 group groups=none
    shift
    for group in $(ctest --test-dir "$(build_dir "$preset")" --print-labels | sed -n 's/^  //p'); do
        case $group in
        slow | long | tsan | first) continue ;;
        tools) [ "$preset" = dev ] || continue ;;
        e2e | docs) [ "$preset" = release ] || continue ;;
        install | cli | fetch | report) [[ $preset =~ ^(release|asan)$ ]] || continue ;;
        *) [ "$preset" != dnnl3 ] || [[ " ${computing[*]} " = *" $group "* ]] || continue ;;
        esac
        groups+="|$group"
    done
    run_tests "$preset" "$groups" "$@"
}

# What is downloaded for some tests comes while the builds compute.
exchange=(tools/fetch_exchange.sh build/deps/exchange)
dnnl3=(tools/fetch_dnnl3.sh build/deps/dnnl3)

fetch() { # NAME COMMAND...: what is downloaded for some tests, which is a must for CI
    local name=$1 log=$logs/fetch-${1// /-}.log
    shift
    if [ "${CI:-false}" = true ]; then
        step "fetch $name" "$@"
    elif ! "$@" >"$log" 2>&1; then
        skip "$name" "it could not be downloaded, see $log"
        return 1
    fi
}

test_dnnl3() {
    fetch "oneDNN 3.x" "${dnnl3[@]}" || return
    build dnnl3 --target "${computing[@]/#/tests-}" && run_groups dnnl3 -LE '^(slow|long)$'
}

test_tsan() {
    # The sanitizer of gcc 12 and 13 cannot live with the address space layout of new kernels.
    if setarch -R true 2>/dev/null; then
        launcher=(setarch -R)
    fi
    build tsan --target tests-tsan || return
    OMP_NUM_THREADS=1 run_tests tsan tsan -LE '^slow$'
    launcher=()
}

launcher=()
mkdir -p "$logs"
echo "set-up:"
if ! tools/setup.sh; then
    n_failed=1
    finish
fi

if [ "${1:-}" = --slow ]; then
    build release && run_groups release -L '^slow$'
    finish
fi

("${exchange[@]}"; "${dnnl3[@]}") >"$logs/fetch-ahead.log" 2>&1 &
echo "builds:"
build dev
dev_built=$?
build release
release_built=$?
build fuzz
if command -v nvcc >/dev/null; then
    # The release build has the back end then, so kernels are not compiled once more for the preset cuda.
    step "configure cuda" cmake --preset cuda
    step "back end cuda" bash -c 'build/der --version | grep "back ends .*cuda"'
    step "programs for cuda" cmake --build --preset release --parallel "$jobs" --target \
        der_bench der_cuda_spike der_cuda_norm
else
    skip "back end cuda" "there is no nvcc"
fi

echo "checks:"
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    step "golden files" env PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tools/gen_golden.py --check
else
    skip "golden files" "they are not regenerated without python3-torch"
fi
step layers tools/check_layers.sh
step headers tools/check_headers.sh
step sizes tools/check_sizes.sh
if [ "${CI:-false}" = true ] || command -v clang-format-14 >/dev/null; then
    step format tools/check_format.sh
else
    skip format "there is no clang-format 14"
fi
step symbols tools/check_symbols.sh
step abi tools/check_abi.sh

wait # for what is downloaded
fetch "exchange formats" "${exchange[@]}" # or their tests are skipped one by one

[ "$dev_built" -eq 0 ] && run_groups dev -LE '^(slow|long)$'
[ "$release_built" -eq 0 ] && run_groups release -LE '^slow$'
build asan && run_groups asan -LE '^(slow|long)$'
test_tsan
test_dnnl3
finish
