#!/bin/bash
# What --resume takes up, what it refuses, and by which name.
# labels: first
. "$(dirname "$0")/../support/test-lib.sh"
# shellcheck source=../support/runs.sh
. "$test_dir/../support/runs.sh"

fingerprint() { # RUN: content and times of all files
    (cd "$1" && find . -type f -printf '%p %T@ %i\n' | sort && sha256sum ./*)
}

start_reference
check "a run has these files" diff <(cd whole && printf '%s\n' *) <(printf '%s\n' config.json \
    exemplars.safetensors lock metrics.jsonl {model,predictions,state}.safetensors)

# A finished run.
fingerprint whole >before
expect_code 0 "a finished run has nothing to go on with" "$DER" train --out whole --resume
check "and says so" grep -q '^whole: this run is finished: 4 classes in 2 steps, average' out
expect_code 0 "its data may be given, under their name" "$DER" train --out whole --resume --data "$data"
expect_code 0 "or another" "$DER" train --out whole --resume --data "$data,size=16"
for other in "${data/seed=1/seed=2}" nowhere; do
    check_fails "data that are not its own are refused: $other" "$DER" train --out whole --resume --data "$other"
    check "and named" one_line err "${other//./\\.}"
done
fingerprint whole >after
check "and is not touched" cmp before after
expect_code 2 "a finished run is not overwritten" "$DER" train "${run_flags[@]}" --out whole
check "and the message says what to do" one_line err "whole holds a run already; resume it"

photos=("$root"/tests/data/fixtures/jpeg/*.jpg)
mkdir -p photos/cat photos/dog
cp "${photos[@]:0:4}" photos/cat
cp "${photos[@]:0:4}" photos/dog
printf 'dog\ncat\n' >list
expect_code 0 "a run on pictures" "$DER" train --data photos --class-list list --threads 1 --quiet --out pictures \
    --set network=resnet18 --set width=0.05 --set epochs=1 --set batch=4 --set lr=0.01 --set order=seed:1
mv photos album
cp list names
expect_code 0 "takes the same ones elsewhere" "$DER" train --out pictures --resume --data album --class-list names
expect_code 0 "and its own when they are gone" "$DER" train --out pictures --resume --data photos --class-list list
expect_code 3 "not a list of classes that is not there" "$DER" train --out pictures --resume --data album --class-list none
check "which is named" one_line err none

# A run that was killed with its last state saved and its last files not in their places yet, each of them.
first_step() { # RUN: puts the files there that the run had after its first step
    cp one/{model,exemplars,predictions}.safetensors "$1"
}
expect_code 0 "a run of one step" "$DER" train "${run_flags[@]}" --max-steps 1 --out one
for n in 0 1 2; do
    cp -r whole killed
    first_step killed
    i=0
    for name in model exemplars predictions; do
        if [ $i -ge $n ]; then
            cp whole/$name.safetensors killed/$name.safetensors.next
        else
            cp whole/$name.safetensors killed/
        fi
        i=$((i + 1))
    done
    expect_code 0 "a finished run with $((3 - n)) files not in place" "$DER" train --out killed --resume --threads 1
    check "says that it is finished" grep -q '^killed: this run is finished: 4 classes' out
    check "and ends with the same bytes" same_run whole killed
    rm -rf killed
done

# A run in the middle of a step: killed when its first state is there.
"$DER" train "${run_flags[@]}" --out half >/dev/null 2>&1 &
pid=$!
for _ in $(seq 300); do
    [ -f half/state.safetensors ] && break
    sleep 0.02
done
expect_code 1 "a second process on a run is refused" "$DER" train --out half --resume --threads 1
check "and told by whom" one_line err "in use by process $pid"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
cp -r half kept
refused() { # NAME PATTERN FLAGS...: refused by name, and nothing changed
    local name=$1 pattern=$2
    shift 2
    expect_code 2 "$name is refused" "$DER" train "$@" --resume --out half
    check "and named" one_line err "$pattern"
}
refused "another setting" 'batch=16, not 32. Give the same' "${run_flags[@]}" --set batch=32
refused "another seed" 'seed=1993, not 5' "${run_flags[@]}" --seed 5
refused "another preset" 'preset=custom, not cifar100-b0-10' --preset cifar100-b0-10 --threads 1
refused "another setting alone" 'other settings: batch=16, not 32. Give' --set batch=32
refused "another method alone" 'other settings: method=der, not joint. Give' --method joint
refused "an unknown preset" "did you mean 'cifar100-b0-10'" --preset cifar100-b0-1O
many=()
for key in first_epochs epochs classifier_epochs batch memory step_classes base_classes warmup_epochs test_batch per_class \
    first_warmup_epochs first_classes; do
    many+=(--set "$key=999")
done
refused "a lot" '[a-z_]*=[0-9]*, not 999; \.\.\. Give the same ones, or none: they are known$' "${many[@]}"
refused "another data set" "is not the data set that the run was started with ($data)" \
    "${run_flags[@]}" --data "${data/seed=1/seed=2}"
refused "another precision" "precision 'f32' .* 'bf16'" "${run_flags[@]}" --precision bf16
refused "another number of threads" "threads '1' .* '2'" "${run_flags[@]}" --threads 2
refused "another last step" "max-steps '0' .* '1'" "${run_flags[@]}" --max-steps 1
refused "another measurement" "measure '' .* 'latency'" "${run_flags[@]}" --measure latency
check "refusals leave the run alone" diff -r half kept

# A disk that is full: a limit on the size of files stands for it.
expect_code 3 "a full disk ends the run" bash -c 'trap "" XFSZ; ulimit -f 400; exec "$@"' sh \
    "$DER" train "${run_flags[@]}" --out half --resume
check "with one message" one_line err 'cannot write half/state.safetensors'
cp -r kept said
expect_code 0 "some of what is the same can be said" "$DER" train --out said --resume --quiet --save-every 2 \
    --seed 1993 --method der --preset custom --set epochs=8 --set target_params=20000
check "and the run ends as if nothing had happened" same_run whole said
expect_code 0 "of a finished run as well" "$DER" train --out said --resume --set epochs=8
expect_code 2 "but nothing else" "$DER" train --out said --resume --set epochs=9
check "which is named" one_line err 'other settings: epochs=8, not 9. Give'
expect_code 0 "settings, data, device and threads need not be repeated" "$DER" train --out half --resume --save-every 2
check "and the run ends as if nothing had happened" same_run whole half

# Another device, when it is asked for.
tiny=(--data synth:classes=4,train=8,test=4,size=8,seed=1 --save-every 1 --set step_classes=2 --set epochs=3
    --set network=resnet32 --set width=0.07 --set classifier_epochs=2 --set batch=8 --set memory=8)
expect_code 0 "a small run" "$DER" train "${tiny[@]}" --threads 1 --device cpu --out there
cp -r there moved
rm moved/{state,model,exemplars,predictions}.safetensors
expect_code 0 "a run goes on on another device" "$DER" train --out moved --resume --device ref --threads 2
check "which is warned about" grep -q "^der: warning: moved was started on device 'cpu' in f32 and goes on on 'ref' in f32" err
check "and recorded" grep -q '"event":"moved","device":"ref","precision":"f32","deterministic":false,"threads":2' moved/metrics.jsonl
check "what it was started with stays" cmp there/config.json moved/config.json
expect_code 0 "it can be looked at" "$DER" info moved

# What else a run was asked for it knows as well.
expect_code 0 "a run that measures more, of one step" "$DER" train "${tiny[@]}" --threads 1 --device cpu --out asked \
    --measure representation --max-steps 1 --bad-images skip
cp -r asked again
rm again/{state,model,exemplars,predictions}.safetensors
expect_code 2 "other ways with bad images are refused" "$DER" train --out again --resume --bad-images stop
check "and named" one_line err "bad-images 'skip' .* 'stop'"
expect_code 2 "other measurements are refused" "$DER" train --out again --resume --measure latency
check "and named" one_line err "measure 'representation' .* 'latency'"
expect_code 0 "what is measured, the last step and bad images need not be repeated" "$DER" train --out again --resume
check "and the run ends with the same bytes" same_run asked again

# Ctrl-C.
"$DER" train "${run_flags[@]}" --set epochs=500 --out long >/dev/null 2>err &
pid=$!
for _ in $(seq 300); do
    [ -f long/state.safetensors ] && break
    sleep 0.02
done
kill -INT "$pid"
wait "$pid"
check "an interrupted run exits with 1" test $? -eq 1
check "and says how to go on" one_line err "stopped in epoch .*'--out long --resume' goes on"

# Nothing saved yet, or nothing there at all.
cp -r kept fresh
rm fresh/state.safetensors
sed -i 's/"onednn":\t"[^"]*"/"onednn":\t"1.0"/' fresh/config.json
expect_code 0 "a run without a state begins anew" "$DER" train "${run_flags[@]}" --out fresh --resume
check "another oneDNN is warned about" grep -q "^der: warning: fresh was started with oneDNN '1.0' and goes on with" err
cp whole/config.json fresh/config.json
check "it ends the same" cmp whole/model.safetensors fresh/model.safetensors
expect_code 0 "a run that never began is begun" "$DER" train "${run_flags[@]}" --out new --resume
check "it ends the same too" same_run whole new
expect_code 2 "without data there is nothing to begin" "$DER" train --out nothing --resume
check "and that is said" one_line err "nothing holds no run to resume"
expect_code 2 "a run to resume has a name" "$DER" train --resume
check "which is --out" one_line err "--resume wants --out RUN"

# Files that were tampered with.
cp -r kept other
sed -i 's/"threads":\t1/"threads":\t2/' other/config.json
expect_code 3 "a changed config.json is refused" "$DER" train --out other --resume --threads 2
check "since the state does not belong to it" one_line err 'does not belong to other/config.json'
cp -r kept short
: >short/metrics.jsonl
expect_code 3 "lost lines are refused" "$DER" train --out short --resume --threads 1
check "and counted" one_line err 'has 0 lines, fewer than the'
cp -r kept cut
truncate -s -100 cut/state.safetensors
expect_code 3 "a truncated state is refused" "$DER" train --out cut --resume --threads 1
check "and named" one_line err 'cut/state.safetensors'

done_testing
