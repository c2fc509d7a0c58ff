#!/bin/bash
# `der data check`: what a folder holds, what is wrong with it, and the exit status that says whether it can be
# trained on.
. "$(dirname "$0")/../support/test-lib.sh"

fixtures=$root/tests/data/fixtures
expect_code 2 "a folder is required" "$DER" data check
expect_code 2 "threads are at least one" "$DER" data check here --threads 0

for kind in cifar10_bin:cifar10 cifar100_py:cifar100 idx_gzip:idx; do
    expect_code 0 "a folder of kind ${kind%:*} is good" "$DER" data check "$fixtures/${kind%:*}"
    check "and its kind is told" grep -q ": ${kind#*:}, [0-9]* classes, [0-9]* training" out
done
expect_code 0 "so are procedural images" "$DER" data check synth:classes=3,train=12,test=4,size=10,seed=1
check "without a warning" grep -qx 'nothing is wrong with it' out
check "and classes of one size are one line" grep -qx 'every class: 12 training and 4 test images' out
check "in a pipe there is no progress" test ! -s err

mkdir -p photos/train/{cat,dog} photos/val/{cat,dog}
cp "$fixtures"/jpeg/{420,grey,444}.jpg photos/train/cat
cp "$fixtures"/jpeg/cmyk.jpg photos/train/dog
cp "$fixtures"/png/grey8.png photos/val/cat
cp "$fixtures"/png/palette4.png photos/val/dog
expect_code 0 "an image folder with nothing but warnings is fit for training" "$DER" data check photos
check "it is summed up" grep -qx 'photos: folder, 2 classes, 4 training and 2 test images' out
check "with the sizes of images" grep -Eqx 'images: 3 channels, height [0-9]+ to 29, width [0-9]+ to 37' out
check "classes of unequal size have a line each" grep -Eqx ' +3 +1  cat' out
check "small classes are warned about" grep -q "^warning: class 'dog' has only 1 training image" out
check "so are unequal ones" grep -q "^warning: classes are of unequal size: 'cat' has 3" out

cp photos/train/cat/420.jpg photos/val/cat/copy.jpg
echo text >photos/train/cat/broken.jpg
head -c 200 photos/train/dog/cmyk.jpg >photos/train/dog/cut.jpg
touch photos/train/dog/notes.txt
expect_code 3 "images that do not decode would end training" "$DER" data check photos
cp out plain.txt
check "which is said in one line" one_line err 'photos: 2 things would end training'
check "one of them is named" grep -q '^error: photos/train/cat/broken.jpg ' plain.txt
check "and the other" grep -q '^error: photos/train/dog/cut.jpg' plain.txt
check "a test picture that is trained on is named" \
    grep -q '^warning: photos/val/cat/copy.jpg is the same picture as photos/train/cat/420.jpg' plain.txt
check "files that nothing reads are named" grep -q '^warning: photos/train/dog: ignored, .*notes.txt' plain.txt
"$DER" data check photos --threads 8 >threads.txt 2>/dev/null
check "threads change nothing" cmp plain.txt threads.txt
printf 'cat\n' >list
expect_code 3 "classes can be chosen" "$DER" data check photos --class-list list
check "and the others are not looked at" sh -c '! grep -q cut.jpg out'

expect_code 3 "all of it can be had as JSON" "$DER" data check photos --json
check "that a parser reads" python3 - out <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["good"] is False
assert report["path"] == "photos" and report["kind"] == "folder" and report["channels"] == 3
assert [c["name"] for c in report["classes"]] == ["cat", "dog"]
assert [(c["train"], c["test"]) for c in report["classes"]] == [(4, 2), (2, 1)]
kinds = [f["kind"] for f in report["findings"]]
assert kinds.count("bad-image") == 2 and kinds.count("duplicate") == 1
assert all(f["error"] == (f["kind"] == "bad-image") for f in report["findings"])
END

expect_code 3 "a folder that is not there is told" "$DER" data check nowhere
check "by name" grep -q '^error: .*nowhere' out
mkdir -p empty/train/{a,b}
expect_code 3 "classes without images are told" "$DER" data check empty
check "all of them" test "$(grep -c '^error: class folder empty/train/. has no images' out)" -eq 2
mkdir -p $'odd/\xff\xfe' odd/b
cp "$fixtures"/jpeg/grey.jpg $'odd/\xff\xfe'
cp "$fixtures"/jpeg/444.jpg odd/b
expect_code 3 "a name that is no UTF-8 would end training" "$DER" data check odd
check "and is shown byte by byte" grep -qF "error: class '\\xff\\xfe' cannot be saved in a model" out
check_fails "which is true" "$DER" train --data odd --set network=resnet32 --out run
check "of the class" one_line err "class '.*' of odd cannot be saved"
expect_code 3 "as JSON it is as well" "$DER" data check odd --json
check "that a parser reads" python3 -c 'import json; json.load(open("out", encoding="utf-8"))'

mkdir -p splits/{train,val,test}/{a,b} splits/val/c
for split in train val test; do
    cp "$fixtures"/jpeg/grey.jpg splits/$split/a
    cp "$fixtures"/jpeg/444.jpg splits/$split/b
done
expect_code 0 "folders that nothing reads end nothing" "$DER" data check splits
check "a third one is named" \
    grep -qx 'warning: splits: ignored, since images are read from train and val: test' out
check "and a class that is only there to test with" \
    grep -qx 'warning: splits/val: ignored, since no class of splits/train: c' out

for i in $(seq 30); do
    mkdir -p "many/$i"
    cp "$fixtures"/jpeg/420.jpg "many/$i"
done
expect_code 0 "many warnings of a kind" "$DER" data check many
check "are cut short" grep -q '^warning: 9 more of the kind two-classes; --json lists them all' out

done_testing
