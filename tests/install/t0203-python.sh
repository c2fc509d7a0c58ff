#!/bin/bash
# The Python example of docs/EMBEDDING.md, that very text, against the installed library.
. "$(dirname "$0")/../support/test-lib.sh"
. "$root/tests/support/installed.sh"

name="the Python example classifies"
if [ -n "$sanitizer" ]; then
    skip "$name" "Python has no address sanitizer"
    done_testing
fi
if ! /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    skip "$name" "there is no python3-numpy"
    done_testing
fi

sed -n '/^```python classify.py$/,/^```$/p' "$root/docs/EMBEDDING.md" | sed '/^```/d' >classify.py
lines=$(grep -cvE '^$' classify.py)
check "it is there, and short" test "$lines" -ge 20 -a "$lines" -le 40

expect_code 0 "a model" "$prefix/bin/der" train --out run --quiet --threads 1 \
    --data synth:classes=3,train=20,test=4,size=16,seed=1 --set network=resnet18-cifar \
    --set width=0.12 --set epochs=2 --set batch=16
# The same picture in three memory layouts, and as a raw frame.
/usr/bin/python3 - <<'PY'
import numpy as np
picture = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
np.save("plain.npy", picture)
np.save("planes.npy", np.asfortranarray(picture))
np.save("other.npy", picture[::-1])
np.save("wrong.npy", picture[:, :, :2])
picture.tofile("frame")
PY

classify() { # PICTURE
    LD_LIBRARY_PATH=$prefix/lib /usr/bin/python3 classify.py run/model.safetensors "$1"
}

expect_code 0 "$name" classify plain.npy
cp out plain.out
check "it prints three classes with their probabilities" \
    test "$(grep -Ec '^[^ ]+ (0\.[0-9]{4}|1\.0000)$' plain.out)" -eq 3
check "which are all there are" awk '{ sum += $2 } END { exit !(sum > 0.9997 && sum < 1.0003) }' plain.out
expect_code 0 "a picture in another memory layout" classify planes.npy
check "is the same picture" cmp out plain.out
expect_code 0 "another picture" classify other.npy
check_not "is another picture" cmp -s out plain.out
/usr/bin/python3 - <<'PY' >classes
import json
with open("run/model.safetensors", "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
print("\n".join(sorted(json.loads(header["__metadata__"]["der"])["classes"])))
PY
check "its classes are the model's" diff <(cut -d ' ' -f 1 plain.out | LC_ALL=C sort) classes

use_prefix "$prefix"
check "the C example is built" build_outside cc -std=c11 "$root/examples/classify_frames.c" classify_frames
expect_code 0 "and gets the same picture" ./classify_frames run 30 20 <frame
# "frame 0: NAME 51.2 % NAME 30.1 %": to the digit that is printed, and half a digit of the other.
check "it thinks the same of it" awk '
    NR == FNR { name[NR] = $1; percent[NR] = 100 * $2; next }
    { same = $3 == name[1] && ($4 - percent[1])^2 <= 0.06^2 && $6 == name[2] && ($7 - percent[2])^2 <= 0.06^2 }
    END { exit !same }
    ' plain.out out

check_fails "a picture that is none is refused" classify wrong.npy
check "with the library's sentence" grep -q 'RuntimeError: .*channels' err
LD_LIBRARY_PATH=$prefix/lib check_fails "a model that is not there is refused" \
    /usr/bin/python3 classify.py nothing plain.npy
check "with the library's sentence" grep -q 'RuntimeError: .*nothing' err

done_testing
