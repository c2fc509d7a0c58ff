# Sourced after test-lib.sh: a tiny run of seconds, killing it, and comparing what is left.
#
# shellcheck shell=bash

# Everything that a state has to carry: masks steered towards a size, heads that start anew after the warm-up,
# a second stage, exemplars.
data=synth:classes=4,train=40,test=20,size=16,seed=1
run_flags=(--data "$data" --threads 1 --save-every 2 --quiet --set step_classes=2 --set width=0.12 --set mask_inherit=1
    --set network=resnet18-cifar --set epochs=8 --set warmup_epochs=2 --set classifier_epochs=6
    --set batch=16 --set order=seed:1 --set memory=20 --set target_params=20k)

strip_times() { # RUN: metrics.jsonl without what differs from run to run
    sed -E 's/"(seconds|images_per_second|ms_per_iter|peak_bytes|batch_1|batch_128)":[^,}]*,?//g' \
        "$1/metrics.jsonl"
}

same_run() { # RUN RUN: byte for byte, times aside
    local file
    for file in config.json {model,exemplars,predictions,state}.safetensors; do
        cmp "$1/$file" "$2/$file" || return 1
    done
    diff <(strip_times "$1") <(strip_times "$2") &&
        diff <(ls -A "$1") <(ls -A "$2")
}

count_lines() { # RUN: lines of metrics.jsonl so far
    local lines=()
    [ -f "$1/metrics.jsonl" ] && mapfile -t lines <"$1/metrics.jsonl"
    echo ${#lines[@]}
}

# A moment is a number of lines in metrics.jsonl, which grows with every epoch however busy the machine is, and
# milliseconds behind it.
# shellcheck disable=SC2034 # for the scripts
random_moment() { # sets at_line and at_ms; $1: lines to come at most
    at_line=$((RANDOM % ($1 + 1)))
    at_ms=$((RANDOM % 120))
}

killed_at() { # RUN LINE MS COMMAND...: true when it was killed, false when it had ended by itself
    local run=$1 line=$2 ms=$3 pid
    shift 3
    "$@" >/dev/null 2>kill.err &
    pid=$!
    while kill -0 "$pid" 2>/dev/null && [ "$(count_lines "$run")" -lt "$line" ]; do
        sleep 0.005
    done
    sleep "$(printf '0.%03d' "$ms")"
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    [ $? -eq 137 ]
}

start_reference() { # makes the run "whole", counts its lines in n_lines, and seeds RANDOM
    local seed
    expect_code 0 "a run that nobody disturbs" "$DER" train "${run_flags[@]}" --out whole
    n_lines=$(count_lines whole)
    seed=${DER_KILL_SEED:-$(($(date +%s%N) / 1000 % 32768))}
    RANDOM=$seed
    echo "# writes $n_lines lines; moments come from DER_KILL_SEED=$seed"
}
