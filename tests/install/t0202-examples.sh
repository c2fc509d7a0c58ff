#!/bin/bash
# The examples are built against the installed copy by CMake and by pkg-config, and do what they say.
# labels: first
. "$(dirname "$0")/../support/test-lib.sh"
. "$root/tests/support/installed.sh"

examples=$(cd "$root/examples" && ls -- *.c)
cp -r "$root/examples" sources # with nothing of the project beside them
use_prefix "$prefix"
flags="-O1 ${strict[*]} -MMD $sanitizer"

expect_code 0 "CMake configures the examples" \
    cmake -S sources -B by-cmake -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="$flags"
expect_code 0 "and builds them" cmake --build by-cmake
cp -r sources by-make
expect_code 0 "make builds them with pkg-config" make -C by-make CFLAGS="$flags"
for way in by-cmake by-make; do
    for source in $examples; do
        check "$way/${source%.c} uses the installed library" \
            test "$(libder_of "$way/${source%.c}")" -ef "$prefix/lib/libder.so"
    done
done
cat by-make/*.d >dependencies
check "the installed headers were read" grep -qF "$prefix/lib/pkgconfig/../../include/der/der.h" dependencies
check_not "and nothing of the project's folder" grep -F "$root/" dependencies

# What is learnt is looked at where the code is fast; elsewhere less of it has to do.
data=synth:classes=4,train=60,test=20,size=16,seed=1
if [ -n "$sanitizer" ]; then
    data=synth:classes=4,train=8,test=4,size=16,seed=1
fi

last_number() { # PATTERN with one group: the number in the last such line of out
    sed -nE "s/.*$1.*/\1/p" out | tail -n 1
}

expect_code 0 "train_two_steps takes two steps" by-cmake/train_two_steps "$data" run
check "and tells about each" test "$(grep -Ec '^step [12]: [24] classes, [0-9.]+ % right' out)" -eq 2
check "and about its epochs" grep -q '^step 2, classifier: epoch 12 of 12' err
if [ -z "$sanitizer" ]; then
    check "four classes are told apart (by chance: 25 %)" \
        awk -v right="$(last_number '4 classes, ([0-9.]+) % right')" 'BEGIN { exit !(right > 50) }'
fi
expect_code 0 "the same command finds it finished" by-make/train_two_steps "$data" run
check_fails "data that are not there are refused" by-make/train_two_steps nowhere
check "with a sentence" grep -q '^train_two_steps: .*nowhere' err

# Frames of a size that is not the model's.
head -c $((3 * 40 * 30 * 3)) /dev/zero >frames
expect_code 0 "classify_frames takes frames from memory" by-make/classify_frames run 40 30 <frames
check "each is answered" test "$(grep -Ec '^frame [0-2]: .+ [0-9.]+ % .+ [0-9.]+ %$' out)" -eq 3
check "with the time it took" grep -Eq '^3 frames: the first in [0-9.]+ ms, then [0-9.]+ ms a frame' err
expect_code 0 "and the model by its file" \
    by-make/classify_frames run/model.safetensors 40 31 <frames
check "half a frame is not dropped in silence" grep -q 'of a last frame' err
check_fails "a model that is not there is refused" by-make/classify_frames nothing 40 30 </dev/null
check "with a sentence" grep -q '^classify_frames: .*nothing' err
check_fails "frames without a size are refused" by-make/classify_frames run 40 0 </dev/null

expect_code 0 "own_data learns from its own pictures" by-make/own_data own.safetensors
check "first two classes" grep -q '^learnt 2 classes from 80 pictures' out
check "then one" grep -q '^learnt 1 classes from 40 pictures' out
check "and is tested on all" test "$(grep -Ec '^(rows|columns|chequers): [0-9]+ of 20 right' out)" -eq 3
if [ -z "$sanitizer" ]; then
    check "most of which is right (by chance: 20 of 60)" \
        awk '/ of 20 right/ { right += $2 } END { exit !(right > 40) }' out
    # Stripes of 8 pixels in 48 x 48, lying and standing, which the model has not seen.
    /usr/bin/python3 -c '
import sys
for standing in (0, 1):
    for y in range(48):
        for x in range(48):
            sys.stdout.buffer.write(bytes([(x if standing else y) // 8 % 2 * 200] * 3))' >stripes
    expect_code 0 "its model classifies frames" by-cmake/classify_frames own.safetensors 48 48 <stripes
    check "lying stripes are rows" grep -q '^frame 0: rows' out
    check "standing ones are columns" grep -q '^frame 1: columns' out
fi

done_testing
