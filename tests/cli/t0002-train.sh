#!/bin/bash
# `der train` on procedural images: what it prints, how it repeats itself, and what it refuses.
# labels: first
. "$(dirname "$0")/../support/test-lib.sh"

data=synth:classes=3,train=20,test=10,size=12,seed=1
tiny=(--threads 1 --set network=resnet32 --set order=seed:1)
small=(--data "$data" "${tiny[@]}" --set width=0.25 --set epochs=2 --set batch=16 --set lr=0.05)

expect_code 0 "training succeeds" "$DER" train "${small[@]}"
check "the result is on standard output" grep -Eq '^test accuracy: average [0-9.]+ %' out
check "so is what was trained" grep -q '^3 classes in 1 step, 60 training images' out
check "and how it went, step by step" grep -Eq '^ +1/1 +3 +[0-9.]+ +[0-9.]+' out
check "in a pipe there is a line of progress now and then" test "$(wc -l <err)" -eq 1
check "with rate, loss and accuracy" grep -Eq 'loss [0-9.]+ +accuracy +[0-9.]+ % +[0-9]+ images/s' err
grep accuracy: out >first
"$DER" train "${small[@]}" --loaders 3 2>/dev/null | grep accuracy: >second
check "the same seed gives the same result, whatever the loaders" cmp first second
expect_code 0 "all that is shown can be turned off" "$DER" train "${small[@]}" --quiet
check "but errors" test ! -s err

# Steps, and what a run leaves behind.
steps=(--data synth:classes=4,train=20,test=10,size=12,seed=1 "${tiny[@]}" --set step_classes=2
    --set width=0.25 --set epochs=2 --set classifier_epochs=2 --set batch=16 --set memory=8 --quiet)
first_number() { # KEY: its first value in JSON
    sed -En "s/.*\"$1\":[[:space:]]*(-?[0-9.e+-]+).*/\1/p" | head -n 1
}
for method in der finetune joint icarl wa bic; do
    expect_code 0 "method $method takes two steps" "$DER" train "${steps[@]}" --method "$method" \
        --out "run-$method"
    check "both are shown" grep -Eq '^ +2/2 +4 ' out
    check "config.json names the method" grep -q "\"method\":.*\"$method\"" "run-$method/config.json"
    check "metrics.jsonl has both steps" \
        test "$(grep -c '"event":"step"' "run-$method/metrics.jsonl")" -eq 2
    check "and an end" test "$(tail -n 1 "run-$method/metrics.jsonl" | grep -c '"event":"end"')" -eq 1
    expect_code 0 "its model is tested" "$DER" eval "run-$method" --data synth:classes=4,train=20,test=10,size=12,seed=1 --json
    check "and is what the last step ended with" test "$(first_number top1 <out)" \
        = "$(grep '"event":"step","step":2,' "run-$method/metrics.jsonl" | first_number top1)"
    expect_code 0 "which can be looked at" "$DER" info "run-$method/model.safetensors" --json
    check "and has as many parameters" test "$(first_number total <out)" \
        = "$(tail -n 1 "run-$method/metrics.jsonl" | first_number params_total)"
done
check "a correction is two numbers, from step 2 on" \
    test "$(grep -Ec '"correction":\{"beta":[-0-9.e]+,"gamma":[-0-9.e]+\}' run-bic/metrics.jsonl)" -eq 1
for key in step classes top1 top5 avg_top1 avg_top5 params avg_params params_total seconds ms_per_iter; do
    check "a step has the key $key" \
        test "$(grep '"event":"step"' run-der/metrics.jsonl | grep -c "\"$key\":[0-9]")" -eq 2
done
check "an epoch is a line" \
    test "$(grep -c '"event":"epoch".*"stage":"representation"' run-der/metrics.jsonl)" -eq 4
expect_code 2 "a folder with a run is not written over" "$DER" train "${steps[@]}" --out run-der
check "and is named" one_line err run-der
expect_code 0 "a run can stop early" "$DER" train "${steps[@]}" --max-steps 1
check "after so many steps" grep -q '^2 classes in 1 step' out
loud=("${steps[@]}")
unset 'loud[-1]' # --quiet
expect_code 0 "joint training can wait for the last step" \
    "$DER" train "${loud[@]}" --set base_classes=3 --set step_classes=1 --method joint --joint-steps last --out run-last \
    --measure transfer
check "which its progress is of" grep -q '^step 2, representation: epoch 1/2' err
check "and then sees all classes" grep -Eq '^ +2/2 +4 ' out
check "once" test "$(grep -Ec '^ +[0-9]/2 ' out)" -eq 1
check "of them two are counted" grep -q '^4 classes in 2 steps' out
check "between which nothing was transferred" test "$(grep -c 'transfer:' out)" -eq 0
grep '"event":"step"' run-last/metrics.jsonl >line
check "the record has the last one's new class" grep -q '"step":2,"classes":4,"new_classes":1,' line
for key in groups representation; do
    check "and $key by the step that brings the classes" grep -Eq "\"$key\":\[[0-9.]+,[0-9.]+\]" line
done
check "as its confusion" grep -Eq '"confusion":\[\[[0-9]+,[0-9]+\],\[[0-9]+,[0-9]+\]\]' line
expect_code 0 "it can be looked at" "$DER" info run-last
check "with as many steps" grep -Eq '^state +finished, 2 of 2 steps done$' out
check "of which the last has numbers" test "$(grep -Ec '^ +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9]+$' out)" -eq 1
check "so that no reference is trained" test "$(grep -c '"reference"' run-last/metrics.jsonl)" -eq 0
expect_code 0 "a size can be wanted" "$DER" train "${steps[@]}" --max-steps 1 --target-params 6k
params=$(sed -n 's/^parameters: average \([0-9]*\),.*/\1/p' out)
check "and is met within a tenth" test "$params" -ge 5400 -a "$params" -le 6600
expect_code 0 "more can be measured" "$DER" train "${steps[@]}" --out run-more \
    --measure representation --measure transfer --measure latency
check "transfer is shown" grep -Eq '^backward transfer: [-+][0-9.]+ %' out
for key in representation classifier_bound reference latency_ms; do
    check "metrics.jsonl has $key" grep -q "\"$key\":" run-more/metrics.jsonl
done
expect_code 0 "forward transfer trains networks to compare with" \
    "$DER" train "${steps[@]}" --set epochs=20 --measure transfer --out run-transfer
epochs_of() { # STAGE: epochs of step 2 in it
    grep -c "\"step\":2,\"stage\":\"$1\"," run-transfer/metrics.jsonl
}
for stage in representation reference; do
    check "step 2 has its epochs of stage $stage" test "$(epochs_of $stage)" -eq 20
done
for stage in classifier 'reference classifier' 'ideal classifier'; do
    check "step 2 has its epochs of stage $stage" test "$(epochs_of "$stage")" -eq 2
done
# A step that counted its reference too would make the parts longer than the whole.
check "the time of a step is that of its own stages" awk -F'"seconds":' '
    /"event":"step"/ || /"reference","epoch":20,/ || /(reference|ideal) classifier","epoch":2,/ { parts += $2 }
    /"event":"end"/ { all = $2 + 0 }
    END { exit !(parts > 0 && parts <= all) }' run-transfer/metrics.jsonl

expect_code 0 "a share can be held out" "$DER" train "${small[@]}" --validation 0.25
check "and is tested on" grep -q '^held-out accuracy: .* of 15 images' out
expect_code 0 "flags take their value after an equals sign too" \
    "$DER" train "--data=$data" "${tiny[@]}" --set=width=0.25 --set=epochs=1 --set=batch=16
expect_code 0 "the reference back end trains too" \
    "$DER" train --data synth:classes=2,train=8,test=4,size=8,seed=1 "${tiny[@]}" --set width=0.1 \
    --set epochs=1 --set batch=8 --device ref

expect_code 2 "data is required" "$DER" train --seed 2
check "and missing data is named" one_line err "--data"
expect_code 2 "an unknown flag is a usage error" "$DER" train --presets 2
check "and the right one is suggested" one_line err "did you mean '--preset'"
expect_code 2 "so is an unknown setting" "$DER" train --data "$data" --set lamda_s=1
check "with a suggestion too" one_line err "did you mean 'lambda_s'"
expect_code 2 "a preset wants its data set" "$DER" train --data "$data" --preset cifar100-b0-10
check "and says how many classes" one_line err "100 classes"
expect_code 2 "and its size of images" "$DER" train --preset cifar100-b0-5 \
    --data synth:classes=100,train=4,test=2,size=16,seed=1 "${tiny[@]}" --out run-size
check "which it names" one_line err "makes 32x32 without resizing, images of .* are 16x16"
check "before the folder of the run is made" test ! -e run-size
expect_code 2 "memory belongs to the protocol" \
    "$DER" train --data "$data" --preset cifar100-b0-10 --set memory=5000
check "and the message says so" one_line err "custom"
expect_code 2 "a memory smaller than the classes to be kept is a usage error" "$DER" train "${steps[@]}" \
    --set memory_mode=total --set memory=1 --out run-none
check "and says how many they are" one_line err "2 classes known before step 2"
check "before a folder is made" test ! -e run-none
expect_code 2 "a word that is no number is a usage error" "$DER" train --seed two
check "and is named" one_line err "'two'"
expect_code 2 "a flag without its value is a usage error" "$DER" train --data
expect_code 2 "an unknown network is a usage error" "$DER" train --data "$data" "${tiny[@]}" --set network=resnet19
check "and the known ones are listed" one_line err "resnet18-cifar"
expect_code 2 "a batch of one image is a usage error" "$DER" train "${small[@]}" --set batch=1
expect_code 2 "skip or stop, nothing else" "$DER" train "${small[@]}" --bad-images maybe
expect_code 3 "data that is not there is a data error" "$DER" train "${tiny[@]}" --data nowhere
check "and the place is named" one_line err nowhere
mkdir empty
expect_code 3 "an empty folder is a data error" "$DER" train "${tiny[@]}" --data empty
check "and the folder is named" one_line err empty
expect_code 4 "a back end that is not built in is a device error" \
    "$DER" train "${small[@]}" --device quantum
check "and those that are get listed" one_line err "ref"
expect_code 1 "numbers that run away end the run" "$DER" train "${small[@]}" --set lr=100 --set decay=1 --set epochs=20
check "with the place" grep -q '^der: step 1, representation: loss .* in epoch [0-9]*, batch' err

# Every kind of data set, from the folder alone.
fixtures=$root/tests/data/fixtures
for kind in cifar10_bin cifar10_py idx_plain idx_gzip; do
    expect_code 0 "a folder of kind $kind is recognised" "$DER" train --data "$fixtures/$kind" \
        "${tiny[@]}" --set width=0.1 --set epochs=1 --set batch=4 --set lr=0.01
done

# Names that JSON cannot hold.
odd=$'caf\xe9'
cp -r "$fixtures/cifar10_bin" "$odd"
plain=("${tiny[@]}" --set width=0.1 --set epochs=1 --set batch=4 --set lr=0.01 --quiet)
expect_code 0 "the name of the data may be any that is not written down" "$DER" train --data "$odd" "${plain[@]}"
expect_code 2 "for a run folder it is UTF-8" "$DER" train --data "$odd" "${plain[@]}" --out run-odd
check "which is said in one line" one_line err "is no UTF-8, so that run-odd/config.json cannot hold it"
check "before the folder is made" test ! -e run-odd
expect_code 2 "so are lists of classes" "$DER" train --data "$data" "${plain[@]}" --class-list "$odd/list" --out run-odd
check "in the same words" one_line err "list' is no UTF-8"
expect_code 2 "and class orders" "$DER" train --data "$data" --set order="$odd/order" --out run-odd
check "which says so too" one_line err "order.*UTF-8"
ln -s "$odd" linked
expect_code 0 "a link will do" "$DER" train --data linked "${plain[@]}" --out run-odd
check "whose name is kept" grep -q '"data":.*"linked"' run-odd/config.json
expect_code 0 "and what it leads to is known again" "$DER" train --resume --out run-odd --data "$odd"
photos=("$fixtures"/jpeg/*.jpg "$fixtures"/png/*.png)
for class in cat dog owl; do
    mkdir -p "photos/$class"
    cp "${photos[@]:0:4}" "photos/$class"
done
folder=(--data photos "${tiny[@]}" --set network=resnet18 --set width=0.05 --set epochs=1
    --set batch=4 --set lr=0.01)
expect_code 0 "an image folder trains, with a fifth held out" "$DER" train "${folder[@]}"
check "all classes are there" grep -q '^3 classes in 1 step, 9 training images' out
expect_code 0 "the first classes can be chosen" "$DER" train "${folder[@]}" --set first_classes=2
check "and only they are used" grep -q '^2 classes in 1 step, 6 training images' out
printf 'owl\ncat\n' >list
expect_code 0 "so can classes by name" "$DER" train "${folder[@]}" --class-list list
check "and only they are used then" grep -q '^2 classes in 1 step, 6 training images' out
for class in cat dog owl; do
    head -c 100 "${photos[0]}" >"photos/$class/broken.jpg"
done
expect_code 3 "an image that does not decode ends the run" "$DER" train "${folder[@]}" --out run-bad
check "and is named" grep -q '^der: .*photos/.*/broken.jpg' err
expect_code 0 "or is skipped, in the same folder" "$DER" train "${folder[@]}" --bad-images skip --out run-bad
for file in photos/owl/*; do
    echo garbage >"$file"
done
expect_code 3 "but a class of which all are skipped ends the run" \
    "$DER" train "${folder[@]}" --bad-images skip --out run-owl
check "and is named" one_line err "class 'owl' in photos"
check "before a folder is made" test ! -e run-owl

# An interrupt ends the run cleanly. The files are emptied here, not by the background process: the loop
# must not take an older message for the run's own.
: >out
: >err
"$DER" train --data "$data" "${tiny[@]}" --set epochs=1000 --set batch=16 >out 2>err &
pid=$!
for _ in $(seq 100); do
    [ -s err ] && break
    sleep 0.1
done
kill -INT "$pid"
wait "$pid"
code=$?
check "an interrupted run exits with 1" test "$code" -eq 1
check "and says so" grep -q '^der: step 1, representation: stopped in epoch' err

# A second one does not wait for the end of an iteration, which takes this back end many seconds here.
"$DER" train --data "$data" --device ref --set network=resnet18-cifar --set batch=64 --out slow >out 2>err &
pid=$!
for _ in $(seq 100); do
    [ -s slow/config.json ] && break
    sleep 0.1
done
sleep 1
kill -INT "$pid"
sleep 0.5
check "an interrupted run ends its iteration first" kill -INT "$pid"
start=$SECONDS
wait "$pid"
check "but a second interrupt ends it at once" test $? -eq 130
check "without waiting" test $((SECONDS - start)) -le 5

done_testing
