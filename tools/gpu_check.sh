#!/bin/bash
# Everything that only a GPU can tell, in one command:
#
#     tools/gpu_check.sh [PART...]         all parts, or some: tests train speed sanitize
#     tools/gpu_check.sh --pack            programs and libraries of a build as build/gpu.tar.xz, for a machine
#                                          with a GPU that cannot build them
#
# Uses build/gpu.tar.xz where there is one, else build/cuda, which is built if need be (DER_BUILD names another
# folder). Every part has a time limit of its own and the script goes on when one fails; all limits together are
# under ten minutes. The last thing printed is a table, which is also left in build/gpu_check.md (DER_REPORT
# names another file), and the logs lie in build/gpu_check. DER_PATIENCE=2 doubles the limits, DER_JOBS=12 runs as many
# tests at a time (6, of sanitizers 8), DER_THREADS=1 has one thread set up what 8 otherwise do, DER_SANITIZER names another
# compute-sanitizer than the toolkit's.
set -uo pipefail
export DER_CACHE_DIR= # what is kept there would hide how long things take
cd "$(dirname "$0")/.." || exit 1
root=$PWD
build=${DER_BUILD:-build/cuda}
archive=build/gpu.tar.xz
report=${DER_REPORT:-build/gpu_check.md}
logs=build/gpu_check
python=${DER_BENCH_PYTHON:-python3}
threads=${DER_THREADS:-8} # that make the plans of convolutions
mapfile -t suites <cmake/cuda_suites.txt
own_tests=(cuda_capture_test cuda_chain_test cuda_error_test cuda_lanes_test cuda_norm_test cuda_pool_test cuda_precision_test cuda_predict_test
    cuda_sgd_test cuda_sheet_test cuda_slopes_rule_test cuda_slopes_test cuda_statistics_test cuda_strip_test
    cuda_strip_weights_test cuda_thin_test cuda_update_test cuda_zeros_test cudnn_keep_test)
n_failed=0

# ---- programs -----------------------------------------------------------------------------------------

make_build() {
    cmake --preset cuda -DDER_TESTS=ON && cmake --build --preset cuda --parallel "$(nproc)" &&
        cmake --build --preset cuda --parallel "$(nproc)" --target der_bench der_cuda_spike der_cuda_norm
}

# Stripped programs with every library that is not the C library's own.
pack() {
    local box name
    make_build || return 1 # always: an old build must not travel
    box=$(mktemp -d) || return 1
    mkdir -p "$box/gpu/tests" "$box/gpu/bench" "$box/gpu/lib"
    for name in "${suites[@]}" "${own_tests[@]}"; do
        cp "$build/tests/$name" "$box/gpu/tests/" || return 1
    done
    cp "$build"/bench/der_{bench,cuda_spike,cuda_norm} "$box/gpu/bench/"
    cp "$build/der" "$box/gpu/" && cp -P "$build"/libder.so* "$box/gpu/lib/"
    strip "$box"/gpu/tests/* "$box"/gpu/bench/* "$box/gpu/der"
    ldd "$box"/gpu/tests/* "$box/gpu/der" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
        grep -vE '/(libc|libm|libdl|librt|libpthread|libder|libstdc\+\+|libgcc_s)\.so' | xargs -I{} cp -L {} "$box/gpu/lib/"
    grep '^CMAKE_HOME_DIRECTORY' "$build/CMakeCache.txt" >"$box/gpu/CMakeCache.txt"
    # All programs hold the same kernels: a dictionary that spans them keeps the archive small.
    XZ_OPT='--lzma2=preset=1,dict=192MiB' tar -C "$box" -cJf "$archive" gpu && rm -rf "$box" && ls -l "$archive"
}

find_build() {
    if [ -z "${DER_BUILD:-}" ] && [ -f "$archive" ]; then
        build=build/gpu
        rm -rf "$build"
        tar -C build -xf "$archive" || return 1
        export LD_LIBRARY_PATH=$root/$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    elif [ ! -x "$build/bench/der_bench" ] || [ ! -x "$build/tests/cuda_predict_test" ]; then
        make_build >"$logs/build.log" 2>&1 || return 1
    fi
    # Tests look for their files where they were compiled.
    local home
    home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt")
    if [ -n "$home" ] && [ ! -e "$home" ]; then
        mkdir -p "$(dirname "$home")" && ln -s "$root" "$home"
    fi
}

# cuDNN and cuBLASLt may come with PyTorch alone.
find_libraries() {
    local folders
    folders=$("$python" - 2>/dev/null <<'PY'
import glob, os, site
roots = site.getsitepackages()
print(":".join(d for r in roots for d in sorted(glob.glob(os.path.join(r, "nvidia", "*", "lib")))))
PY
    )
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${folders:+:$folders}
}

# ---- parts --------------------------------------------------------------------------------------------

row() { # WHAT RESULT SECONDS NOTE
    echo "| $1 | $2 | $3 | $4 |" >>"$report"
    echo "$1: $2 ($3 s) $4"
}

# part NAME SECONDS COMMAND...: runs with a limit; the log's last line is the note.
part() {
    local name=$1 limit=$(($2 * ${DER_PATIENCE:-1})) log status start seconds result
    shift 2
    log=$logs/${name//[^A-Za-z0-9]/_}.log
    start=$(date +%s)
    timeout --kill-after=5 "$limit" "$@" >"$log" 2>&1 </dev/null
    status=$?
    seconds=$(($(date +%s) - start))
    result=passed
    if [ $status -eq 124 ] || [ $status -eq 137 ]; then
        result="over $limit s"
    elif [ $status -ne 0 ]; then
        result="FAILED ($status)"
    fi
    [ "$result" = passed ] || n_failed=$((n_failed + 1))
    row "$name" "$result" "$seconds" "$(grep -v '^ *$' "$log" | tail -1 | cut -c1-160 | tr '|' '/')"
}

run_one_test() { # NAME BACKENDS
    local status
    mkdir -p "$logs/tests"
    if [ -n "$2" ]; then
        DER_TEST_BACKENDS=$2 tools/run_test.sh "$logs/tests/$1" "$build/tests/$1" >/dev/null
    else
        tools/run_test.sh "$logs/tests/$1" "$build/tests/$1" >/dev/null
    fi
    status=$?
    echo "$1: $(cat "$logs/tests/$1.count") passed, failed, skipped"
    return $status
}

run_tests() {
    local name
    { printf '%s cuda\n' "${suites[@]}" && printf '%s -\n' "${own_tests[@]}"; } |
        xargs -P "${DER_JOBS:-6}" -L 1 "$root/tools/gpu_check.sh" --one-test
    local status=$?
    grep -h '^not ok' "$logs"/tests/*.log | grep -v SKIP
    for name in "${suites[@]}" "${own_tests[@]}"; do
        cat "$logs/tests/$name.count"
    done | awk '{ p += $1; f += $2; s += $3 } END { print p " passed, " f " failed, " s " skipped" }'
    return $status
}

# Two steps of DER on pictures made here, as large as CIFAR-100's: what the program itself reports.
run_training() {
    rm -rf "$logs/run"
    "$build/der" train --data synth:classes=20,train=500,test=100,size=32,seed=1 --out "$logs/run" \
        --device cuda --precision bf16 --threads "$threads" --quiet --set step_classes=10 --set base_classes=10 \
        --set epochs=8 --set first_epochs=8 --set classifier_epochs=4 || return 1
    grep -o '"\(ms_per_iter\|seconds\|top1\|images_per_second\)":[^,}]*' "$logs/run/metrics.jsonl" | tail -12
    "$build/der" train --resume --out "$logs/run" --quiet || return 1
    grep -o '"ms_per_iter":[^,}]*' "$logs/run/metrics.jsonl" | tr '\n' ' '
}

run_speed() { # MODEL EXTRACTORS
    "$python" bench/cuda_torch.py --bench "$build/bench/der_bench" --model "$1" --extractors "$2" --rounds 5 \
        --options "--threads $threads"
}

run_alone() { # ARGUMENTS OF der_bench der
    printf 'run 50\nrun 200\nrun 200\nrun 200\nquit\n' |
        "$build/bench/der_bench" der --backend cuda --precision bf16 --threads "$threads" "$@"
}

# How long it takes to compile all programs of a step of so many extractors: without a folder for compiled kernels, with an empty one and
# with a full one.
run_opening() { # EXTRACTORS...
    local t folder cache
    for t in "$@"; do
        folder=$(mktemp -d) || return 1
        for cache in none empty full; do
            printf '%s: ' "$cache"
            "$build/bench/der_bench" step --backend cuda --precision bf16 --threads "$threads" \
                --extractors "$t" --cache "$([ $cache = none ] || echo "$folder/cache")" || return 1
        done
        du -sh "$folder/cache" | sed 's/\t.*/ of compiled kernels/'
        rm -rf "$folder"
    done | paste -sd ' '
}

# Races of cuDNN's kernels alone, and every test passed. Those of this project have names that end in _kernel, and so do a few of cuDNN's.
are_theirs() { # LOG
    grep -q '^========= Error: Race' "$1" && ! grep -q 'FAILED' "$1" && ! grep -E '^========= (Error|Warning|Internal)' "$1" | grep -qv cudnn
}

# Prints "clean", or where to look.
run_sanitizer() { # TOOL TEST [NAMES OF CASES]
    local log=$logs/$1_$2${3:+_${3//[^a-z0-9]/}}.log
    [ -z "${3:-}" ] || export DER_TEST_NAMES=$3
    DER_TEST_BACKENDS=cuda "${DER_SANITIZER:-compute-sanitizer}" --tool "$1" --kernel-name kns=_kernel --error-exitcode 9 \
        "$build/tests/$2" >"$log" 2>&1 || are_theirs "$log" || { echo "see $log" && return 1; }
    grep -q 'PASSED  \] [1-9]' "$log" || { echo "no test ran: $log" && return 1; }
    echo clean
}

# Tool, program and cases, a line for each process. Racecheck of tensor cores takes longest: a process for each op.
list_sanitizers() {
    sed -n 's/^ *X(OP_[A-Z0-9_]*, "\([a-z0-9_]*\)").*/racecheck cuda_precision_test test_\1_in_*/p' src/graph/op.h
    printf '%s\n' "memcheck cuda_precision_test" "initcheck cuda_precision_test" \
        "racecheck parity_test" "memcheck parity_test" "initcheck parity_test"
}

# Every op in float32, bf16 and TF32 under every tool. The last line counts what was clean.
run_sanitizers() {
    local n_all n_clean
    n_all=$(list_sanitizers | wc -l)
    list_sanitizers | xargs -P "${DER_JOBS:-8}" -L 1 "$root/tools/gpu_check.sh" --one-sanitizer >"$logs/sanitizers.txt"
    n_clean=$(grep -c '^clean' "$logs/sanitizers.txt")
    grep -v '^clean' "$logs/sanitizers.txt"
    echo "$n_clean of $n_all clean: memcheck, racecheck, initcheck"
    [ "$n_clean" -eq "$n_all" ]
}

do_tests() {
    part "tests of the group cuda" 150 "$root/tools/gpu_check.sh" --all-tests
}

do_train() {
    part "der train, two steps" 80 "$root/tools/gpu_check.sh" --training
}

do_speed() {
    part "resnet18 t=1,5,10 beside the twin" 80 "$root/tools/gpu_check.sh" --speed resnet18-cifar 1,5,10
    part "resnet32 t=1,10 beside the twin" 50 "$root/tools/gpu_check.sh" --speed resnet32 1,10
    part "resnet18 t=10 pruned, masks" 30 "$root/tools/gpu_check.sh" --alone --extractors 10 \
        --frozen-width 0.283 --masks
    part "resnet18 t=10,50 compiled, kernels kept" 45 "$root/tools/gpu_check.sh" --opening 10 50
}

do_sanitize() {
    part "compute-sanitizer, every op" 150 "$root/tools/gpu_check.sh" --sanitizers
}

# Parts run this script again, so that `timeout` has a program to end.
export DER_GPU_BUILD=${DER_GPU_BUILD:-}
case ${1:-} in
--pack) pack; exit ;;
--one-test) build=$DER_GPU_BUILD; run_one_test "$2" "${3/#-/}"; exit ;;
--all-tests) build=$DER_GPU_BUILD; run_tests; exit ;;
--training) build=$DER_GPU_BUILD; run_training; exit ;;
--speed) build=$DER_GPU_BUILD; run_speed "$2" "$3"; exit ;;
--alone) build=$DER_GPU_BUILD; shift; run_alone "$@"; exit ;;
--opening) build=$DER_GPU_BUILD; shift; run_opening "$@"; exit ;;
--sanitizers) build=$DER_GPU_BUILD; run_sanitizers; exit ;;
--one-sanitizer) build=$DER_GPU_BUILD; run_sanitizer "$2" "$3" "${4:-}"; exit ;;
esac

rm -rf "$logs"
mkdir -p "$logs"
find_build || { echo "gpu_check: no build, see $logs/build.log" >&2; exit 1; }
find_libraries
export DER_GPU_BUILD=$build
{
    echo "# GPU check"
    echo
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>&1 | head -1
    "$build/der" --version 2>&1 | head -3
    echo
    echo "| part | result | s | last line of its log |"
    echo "|---|---|---|---|"
} >"$report"
for name in "${@:-tests train speed sanitize}"; do
    for which in $name; do
        case $which in
        tests | train | speed | sanitize) "do_$which" ;;
        *) echo "gpu_check: no part '$which'; there are tests, train, speed, sanitize" >&2; exit 2 ;;
        esac
    done
done
{
    echo
    echo "Speed, in full:"
    echo
    sed 's/^/    /' "$logs"/resnet*.log 2>/dev/null
    sed 's/^/    /' "$logs"/der_train*.log 2>/dev/null
} >>"$report"
echo
cat "$report"
[ "$n_failed" -eq 0 ]
