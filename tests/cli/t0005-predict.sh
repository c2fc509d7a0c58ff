#!/bin/bash
# `der eval`, `der predict` and `der info` on a model that a run of seconds has left.
# labels: first
. "$(dirname "$0")/../support/test-lib.sh"

has_python() { command -v python3 >/dev/null; }

check_json() { # NAME CODE ARGUMENTS...: the Python code holds; without Python it is skipped
    local name=$1 code=$2
    shift 2
    if has_python; then
        check "$name" python3 -c "import json, sys
$code" "$@"
    else
        skip "$name" "no python3"
    fi
}

data=synth:classes=4,train=40,test=20,size=16,seed=1
expect_code 0 "a tiny run" "$DER" train --data "$data" --out run --threads 1 --quiet \
    --set step_classes=2 --set order=seed:1 --set network=resnet18-cifar --set width=0.12 \
    --set batch=16 --set epochs=3 --set memory=20 --set classifier_epochs=2 --set lr=0.05
model=run/model.safetensors

# ---- eval -------------------------------------------------------------------------------------------

expect_code 0 "a model is tested" "$DER" eval $model --data "$data" --threads 1 --json
cp out eval.json
check_json "its accuracy is that of the run, to the last bit" '
steps = [json.loads(line) for line in open("run/metrics.jsonl")]
last = [s for s in steps if s["event"] == "step"][-1]
e = json.load(open("eval.json"))
assert e["top1"] == last["top1"] and e["top5"] == last["top5"], (e, last)
assert e["split"] == "test" and e["images"] == 80 and e["unknown_classes"] == 0
assert [s["images"] for s in e["steps"]] == [40, 40]
assert sum(s["top1"] for s in e["steps"]) / 2 == e["top1"]
assert len(e["classes"]) == 4 and all(c["images"] == 20 for c in e["classes"])
'
expect_code 0 "a run folder stands for its model" "$DER" eval run --data "$data" --threads 1 --json
check "and gives the same" cmp out eval.json
expect_code 0 "another batch size" "$DER" eval run --data "$data" --threads 1 --batch 7 --json
check "counts the same" cmp out eval.json
expect_code 0 "what every image was taken for is written" \
    "$DER" eval run --data "$data" --threads 1 --predictions guesses.safetensors --json
check "beside the same numbers" cmp out eval.json
cat >guesses.py <<'PY'
import json, struct, sys

def read(path):
    data = open(path, "rb").read()
    (n,) = struct.unpack_from("<Q", data)
    head = json.loads(data[8:8 + n])
    def column(name, form):
        begin, end = head[name]["data_offsets"]
        return [x for (x,) in struct.iter_unpack("<" + form, data[8 + n + begin:8 + n + end])]
    rows = zip(column("samples", "q"), column("labels", "i"), column("guesses", "i"), column("confidence", "f"))
    return head["__metadata__"]["der"], sorted(rows)

ours, runs = read("guesses.safetensors"), read("run/predictions.safetensors")
right = sum(label == guess for _, label, guess, _ in ours[1])
same = ours[0] == runs[0] and [row[:3] for row in ours[1]] == [row[:3] for row in runs[1]]
close = all(abs(a[3] - b[3]) < 1e-5 for a, b in zip(ours[1], runs[1]))
sys.exit(not (same and close and 100 * right / len(ours[1]) == json.load(open("eval.json"))["top1"]))
PY
check "as the run had it, and as right as that" python3 guesses.py
check_fails "where nothing can be written, that is said" \
    "$DER" eval run --data "$data" --threads 1 --predictions nowhere/guesses.safetensors
check "by name" grep -q 'nowhere/guesses.safetensors' err
expect_code 2 "nor over the model" "$DER" eval run --data "$data" --predictions run/model.safetensors
check "which is told" one_line err "--predictions would replace run/model.safetensors"
expect_code 0 "in words" "$DER" eval run --data "$data" --threads 1 --per-class
check "with all images" grep -Eq '^test accuracy: top-1 [0-9.]+ %, top-5 100.00 % of 80 images in 4 of' out
check "and one line a class" test "$(grep -Ec '^ +[0-3] +20 ' out)" -eq 4
script -qefc "'$DER' eval run --data '$data' --threads 1 --batch 7 >told" shown </dev/null >/dev/null
check "a terminal shows how far it is" grep -Eq '[0-9]+ of [0-9]+ images  [0-9]+ images/s  [0-9:]+ left' shown
check "and the result is told elsewhere" grep -q '^test accuracy: top-1 ' told
expect_code 0 "training images on request" "$DER" eval run --data "$data" --split train --threads 1
check "are more" grep -q 'of 160 images' out
expect_code 0 "classes that the model does not know" "$DER" eval run --threads 1 \
    --data "${data/classes=4/classes=6}"
check "are left out with a warning" one_line err 'warning: the model does not know 2 of the 6 classes'
check "and the others tested" grep -q 'of 80 images' out
expect_code 2 "data are wanted" "$DER" eval run
check "and named" one_line err 'data is missing'
expect_code 2 "a split is train or test" "$DER" eval run --data "$data" --split both
expect_code 2 "a model is wanted" "$DER" eval --data "$data"
check "and named" one_line err 'MODEL is missing'

# ---- models that are none ---------------------------------------------------------------------------

expect_code 3 "a model that is not there" "$DER" predict nowhere x.png
check "is named" one_line err nowhere
head -c 3000 $model >short
expect_code 3 "a model that is cut off" "$DER" eval short --data "$data"
check "is named" one_line err 'short'
mkdir empty
expect_code 3 "a folder without a model" "$DER" predict empty x.png
check "is told" one_line err 'holds no model'
expect_code 4 "a back end that is not there" "$DER" predict run x.png --device abacus

# ---- predict ----------------------------------------------------------------------------------------

if ! has_python; then
    skip "pictures are predicted" "no python3"
    done_testing
fi
# Noise of several sizes under the names of the model's classes: DIR/CLASS/N.png.
python3 - $model <<'PYTHON' || exit 1
import json, os, random, struct, subprocess, sys, zlib

def png(path, height, width, grey=False):
    channels = 1 if grey else 3
    rows = b"".join(b"\0" + bytes(random.randrange(256) for _ in range(channels * width))
                    for _ in range(height))
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if grey else 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

random.seed(1)
info = json.loads(subprocess.check_output([os.environ["DER"], "info", sys.argv[1], "--json"]))
for name in info["classes"]:
    os.makedirs("pictures/" + name)
    for i in range(9):
        png("pictures/%s/%d.png" % (name, i), 5 + 7 * i, 50 - 5 * i, grey=i % 4 == 0)
PYTHON
find pictures -name '*.png' | LC_ALL=C sort >list
expect_code 0 "a folder of pictures" "$DER" predict run pictures --threads 1
cut -f1 out >paths
check "gives a line for each, in order" cmp paths list
check "with class and probability" \
    awk -F '\t' 'NF != 3 || $3 < 0.25 || $3 > 1 { exit 1 }' out
mapfile -t files <list
expect_code 0 "the same as words" "$DER" predict run "${files[@]}" --threads 1 --json --logits --top 4
cp out predicted
check_json "JSON holds together" '
import math
rows = [json.loads(line) for line in open("predicted")]
for row in rows:
    guesses, logits = row["guesses"], row["logits"]
    assert len(guesses) == 4 and len(logits) == 4
    assert [g["label"] for g in guesses] == sorted(range(4), key=lambda c: (-logits[c], c))
    powers = [math.exp(x / 5.0) for x in logits]  # the temperature of the settings
    for g in guesses:
        assert abs(g["probability"] - powers[g["label"]] / sum(powers)) < 1e-6, row
'
expect_code 0 "eval of the same folder" "$DER" eval run --data pictures --threads 1 --json
check_json "agrees with the predictions, class by class" '
import os
rows = [json.loads(line) for line in open("predicted")]
e = json.load(open("out"))
assert e["split"] == "train" and e["images"] == len(rows) == 36
for c in e["classes"]:
    own = [r for r in rows if os.path.dirname(r["path"]).endswith("/" + c["class"])]
    right = sum(r["guesses"][0]["class"] == c["class"] for r in own)
    assert c["images"] == len(own) == 9
    assert c["top1"] == 100.0 * right / 9, (c, right)
'
one=${files[4]}
expect_code 0 "the best two" "$DER" predict $model "$one" --top 2 --threads 1
check "in one line" awk -F '\t' 'NF != 5 || $3 < $5 { exit 1 }' out
cut -f2- out >want
expect_code 0 "standard input" "$DER" predict $model - --top 2 --threads 1 <"$one"
check "is called -" grep -q '^-	' out
check "and gives the same" cmp want <(cut -f2- out)
expect_code 0 "more classes than there are" "$DER" predict run "$one" --top 9
check "are as many as there are" awk -F '\t' 'NF != 9 { exit 1 }' out
expect_code 0 "logits in words" "$DER" predict run "$one" --logits
check "stand behind the guess" awk -F '\t' 'NF != 7 { exit 1 }' out

head -c 200 "$one" >cut.png
echo "no picture" >text.png
mkdir nothing
expect_code 3 "pictures that cannot be read" \
    "$DER" predict run cut.png "$one" text.png missing.png nothing "${files[5]}" --threads 1
check "do not keep the others from being predicted" test "$(wc -l <out)" -eq 2
check "and are told, each by its name" test "$(grep -Ec \
    '^der: (.*cut\.png|.*text\.png|.*missing\.png|nothing: )' err)" -eq 4
check "and nothing else is" test "$(wc -l <err)" -eq 4
expect_code 3 "bad bytes on standard input" "$DER" predict run - <text.png
check "are called -" one_line err '^der: -: '

evil=$'e\nvil\x1b[31m\xff.png'
mkdir evil
cp "$one" "evil/$evil"
expect_code 0 "names that would do something to a terminal" "$DER" predict run evil
check "are shown harmless" grep -q 'evil/e\\nvil\\x1b\[31m\\xff\.png	' out
check "in one line" test "$(wc -l <out)" -eq 1
expect_code 3 "in messages too" "$DER" predict run "evil/x$evil"
check "they are" one_line err 'evil/xe\\nvil\\x1b\[31m\\xff\.png'
expect_code 0 "and as JSON" "$DER" predict run evil --json
check_json "a program reads them" '
assert json.loads(open("out", encoding="utf-8").read())["path"] == "evil/e\nvil\x1b[31m\ufffd.png"'
cp "$one" ./--top
expect_code 0 "a file that is called like a flag" "$DER" predict run -- --top
check "comes behind --" grep -q '^--top	' out

mkdir -p others/x others/y
cp "$one" others/x
cp "$one" others/y
expect_code 3 "data without a class that the model knows" "$DER" eval run --data others
check "are refused" one_line err 'the model knows none of the'
expect_code 2 "pictures are wanted" "$DER" predict run
expect_code 2 "--top is at least 1" "$DER" predict run "$one" --top 0

# ---- info -------------------------------------------------------------------------------------------

expect_code 0 "a model is described" "$DER" info $model
check "with its classes" grep -q '^classes  *4 in 2 steps' out
check "its extractors" test "$(grep -Ec '^ +[12] +[0-9]+ +[0-9]+  3x3 ' out)" -eq 2
expect_code 0 "as JSON" "$DER" info $model --json
cp out model.json
check_json "with the parameters that the run has counted" '
last = [s for s in map(json.loads, open("run/metrics.jsonl")) if s["event"] == "step"][-1]
m = json.load(open("model.json"))
assert m["parameters"]["extractors"] == last["params"]
assert m["parameters"]["total"] == last["params_total"]
assert m["parameters"]["extractors"] == sum(e["parameters"] for e in m["extractors"])
assert m["steps"] == [2, 2] and m["temperature"] == 5 and m["image"]["height"] == 16'
expect_code 0 "a run is described" "$DER" info run
check "as finished" grep -q '^state  *finished, 2 of 2 steps done$' out
check "with its settings" grep -Eq '^step_classes +2$' out
expect_code 0 "as JSON" "$DER" info run --json
cp out run.json
check_json "with its numbers" '
r = json.load(open("run.json"))
steps = [s for s in map(json.loads, open("run/metrics.jsonl")) if s["event"] == "step"]
assert r["state"] == "done" and r["ended"] and not r["running"] and r["model"]
assert [s["top1"] for s in r["steps"]] == [s["top1"] for s in steps]
assert r["settings"]["step_classes"] == 2'
"$DER" train --data "$data" --out long --threads 1 --quiet --set epochs=100000 --set width=0.1 \
    --set network=resnet18-cifar --save-every 1 >/dev/null 2>&1 &
pid=$!
for _ in $(seq 300); do
    [ -f long/state.safetensors ] && break
    sleep 0.02
done
expect_code 0 "a run that goes on" "$DER" info long
check "is running" grep -Eq '^state  *not finished, running, 0 of 1 step done, saved in the repr' out
kill -KILL "$pid"
wait "$pid" 2>/dev/null
expect_code 0 "one that was killed" "$DER" info long
check "is not" grep -Eq '^state  *not finished, 0 of 1 step done' out
expect_code 0 "a run that was to end early" "$DER" train --data "$data" --out early --threads 1 --quiet \
    --max-steps 1 --set step_classes=2 --set network=resnet18-cifar --set width=0.1 --set epochs=1 \
    --set batch=16
expect_code 0 "is described" "$DER" info early
check "as one" grep -q 'ended, as --max-steps said, 1 of 2 steps done' out
expect_code 0 "a preset is described" "$DER" info --preset cifar100-b50-10
check "with its steps" grep -q '^steps  *11: 50 classes in the first, then 5 each, 100 in all' out
check "layer by layer" grep -Eq '^layer4.0.downsample.0 +256>512 +1x1 +2 +4x4 +132096 +2097152$' out
expect_code 0 "as JSON" "$DER" info --preset cifar100-b0-10 --json --set width=0.5
cp out preset.json
check_json "with settings changed" '
p = json.load(open("preset.json"))
assert p["network"]["width"] == 0.5 and p["network"]["features"] == 256
assert sum(p["steps"]) == p["classes"] == 100
assert sum(l["parameters"] for l in p["network"]["layers"]) == p["network"]["parameters"]'
expect_code 2 "a preset with a mistake" "$DER" info --preset cifar100-b0-11
check "is suggested" one_line err 'did you mean'
expect_code 2 "one thing at a time" "$DER" info run --preset custom
expect_code 2 "something is wanted" "$DER" info
expect_code 3 "a folder without a run" "$DER" info empty

done_testing
