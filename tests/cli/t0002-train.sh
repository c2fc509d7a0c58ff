#!/bin/bash
# `der train` on procedural images: what it prints, how it repeats itself, and what it refuses.
. "$(dirname "$0")/../support/test-lib.sh"

data=synth:classes=3,train=20,test=10,size=12,seed=1
small=(--data "$data" --net resnet32 --width 0.25 --epochs 2 --batch 16 --lr 0.05)

one_line() { # FILE PATTERN: exactly one line, starting with "der: ", that matches
    [ "$(wc -l <"$1")" -eq 1 ] && grep -q '^der: ' "$1" && grep -q -- "$2" "$1"
}

expect_code 0 "training succeeds" "$DER" train "${small[@]}"
check "the result is on standard output" grep -Eq '^test accuracy: top-1 [0-9.]+ %' out
check "so is what was trained" grep -Eq '^3 classes, 60 training images, 29[0-9]{3} parameters' out
check "progress is one plain line an epoch" test "$(wc -l <err)" -eq 2
check "with rate, loss and accuracy" grep -Eq 'loss [0-9.]+ +accuracy +[0-9.]+ % +[0-9]+ images/s' err
grep accuracy: out >first
"$DER" train "${small[@]}" --loaders 3 2>/dev/null | grep accuracy: >second
check "the same seed gives the same result, whatever the loaders" cmp first second

expect_code 0 "a share can be held out" "$DER" train "${small[@]}" --validation 0.25
check "and is tested on" grep -q '^held-out accuracy: .* of 15 images' out
expect_code 0 "flags take their value after an equals sign too" \
    "$DER" train "--data=$data" --net=resnet32 --width=0.25 --epochs=1 --batch=16
expect_code 0 "the reference back end trains too" \
    "$DER" train --data synth:classes=2,train=8,test=4,size=8,seed=1 --net resnet32 --width 0.1 \
    --epochs 1 --batch 8 --device ref

expect_code 0 "der train --help succeeds" "$DER" train --help
for flag in $(sed -n 's/^  --\([a-z-]*\) .*/\1/p' out); do
    check "man page describes --$flag" grep -q -- "\\\\-\\\\-${flag//-/\\\\-}" "$root/man/der.1"
done

expect_code 2 "data is required" "$DER" train --epochs 2
check "and missing data is named" one_line err "--data"
expect_code 2 "an unknown flag is a usage error" "$DER" train --epoch 2
check "and the right one is suggested" one_line err "did you mean '--epochs'"
expect_code 2 "a word that is no number is a usage error" "$DER" train --epochs two
check "and is named" one_line err "'two'"
expect_code 2 "a flag without its value is a usage error" "$DER" train --data
expect_code 2 "an unknown network is a usage error" "$DER" train --data "$data" --net resnet19
check "and the known ones are listed" one_line err "resnet18-cifar"
expect_code 2 "a batch of one image is a usage error" "$DER" train "${small[@]}" --batch 1
expect_code 2 "skip or stop, nothing else" "$DER" train "${small[@]}" --bad-images maybe
expect_code 3 "data that is not there is a data error" "$DER" train --data nowhere
check "and the place is named" one_line err nowhere
mkdir empty
expect_code 3 "an empty folder is a data error" "$DER" train --data empty
check "and the folder is named" one_line err empty
expect_code 4 "a back end that is not built in is a device error" \
    "$DER" train "${small[@]}" --device quantum
check "and those that are get listed" one_line err "ref"
expect_code 1 "numbers that run away end the run" "$DER" train "${small[@]}" --lr 1e12
check "with the place" grep -q '^der: training: loss .* in epoch 1, batch' err

# Every kind of data set, from the folder alone.
fixtures=$root/tests/data/fixtures
for kind in cifar10_bin cifar10_py idx_plain idx_gzip; do
    expect_code 0 "a folder of kind $kind is recognised" "$DER" train --data "$fixtures/$kind" \
        --net resnet32 --width 0.1 --epochs 1 --batch 4 --lr 0.01
done
photos=("$fixtures"/jpeg/*.jpg "$fixtures"/png/*.png)
for class in cat dog owl; do
    mkdir -p "photos/$class"
    cp "${photos[@]:0:4}" "photos/$class"
done
folder=(--data photos --net resnet18 --width 0.05 --epochs 1 --batch 4 --lr 0.01)
expect_code 0 "an image folder trains, with a fifth held out" "$DER" train "${folder[@]}"
check "all classes are there" grep -q '^3 classes, 9 training images' out
expect_code 0 "the first classes can be chosen" "$DER" train "${folder[@]}" --first-classes 2
check "and only they are used" grep -q '^2 classes, 6 training images' out
printf 'owl\ncat\n' >list
expect_code 0 "so can classes by name" "$DER" train "${folder[@]}" --class-list list
check "and only they are used then" grep -q '^2 classes, 6 training images' out
for class in cat dog owl; do
    head -c 100 "${photos[0]}" >"photos/$class/broken.jpg"
done
expect_code 3 "an image that does not decode ends the run" "$DER" train "${folder[@]}"
check "and is named" grep -q '^der: .*photos/.*/broken.jpg' err
expect_code 0 "or is skipped" "$DER" train "${folder[@]}" --bad-images skip

# An interrupt ends the run cleanly. The files are emptied here, not by the background process: the loop
# must not take an older message for the run's own.
: >out
: >err
"$DER" train --data "$data" --net resnet32 --epochs 1000 --batch 16 >out 2>err &
pid=$!
for _ in $(seq 100); do
    [ -s err ] && break
    sleep 0.1
done
kill -INT "$pid"
wait "$pid"
code=$?
check "an interrupted run exits with 1" test "$code" -eq 1
check "and says so" grep -q '^der: training: stopped in epoch' err

done_testing
