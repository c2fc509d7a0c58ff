# Sourced after test-lib.sh: a tiny run of seconds, killing it, and comparing what is left.
#
# shellcheck shell=bash

# Everything that a state has to carry: masks steered towards a size, heads that start anew after the warm-up,
# a second stage, exemplars.
data=synth:classes=4,train=40,test=20,size=16,seed=1
run_flags=(--data "$data" --threads 1 --save-every 2 --quiet --set step_classes=2 --set width=0.12
    --set network=resnet18-cifar --set epochs=8 --set warmup_epochs=2 --set classifier_epochs=6
    --set batch=16 --set order=seed:1 --set memory=20 --set target_params=20k)

strip_times() { # RUN: metrics.jsonl without what differs from run to run
    sed -E 's/"(seconds|images_per_second|ms_per_iter|peak_bytes)":[^,}]*,?//g' "$1/metrics.jsonl"
}

same_run() { # RUN RUN: byte for byte, times aside
    local file
    for file in config.json model.safetensors exemplars.safetensors state.safetensors; do
        cmp "$1/$file" "$2/$file" || return 1
    done
    diff <(strip_times "$1") <(strip_times "$2") &&
        diff <(ls -A "$1") <(ls -A "$2")
}

killed_after() { # SECONDS COMMAND...: true when the process was killed, false when it had ended by itself
    local seconds=$1 pid
    shift
    "$@" >/dev/null 2>kill.err &
    pid=$!
    sleep "$seconds"
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    [ $? -eq 137 ]
}

# A moment within the next $1 milliseconds, as seconds.
random_moment() {
    local ms=$((RANDOM * $1 / 32768))
    printf '%d.%03d' $((ms / 1000)) $((ms % 1000))
}

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

start_reference() { # makes the run "whole"; sets duration, in milliseconds, and seeds RANDOM
    local begin
    begin=$(now_ms)
    expect_code 0 "a run that nobody disturbs" "$DER" train "${run_flags[@]}" --out whole
    duration=$(($(now_ms) - begin))
    seed=${DER_KILL_SEED:-$((begin % 32768))}
    RANDOM=$seed
    echo "# takes $duration ms; moments come from DER_KILL_SEED=$seed"
}
