#!/bin/bash
# The story of der learn: three classes of photographs, later two more, later one, then more pictures of one that is
# known; the model is moved in between and its pictures are gone. Killed and interrupted lessons leave what was there.
# labels: first
. "$(dirname "$0")/../support/test-lib.sh"
python=/usr/bin/python3
flags=(--image-size 32 --width 0.5 --epochs 20 --classifier-epochs 12 --batch 8 --lr 0.05 --memory 12 --target-params 60k
    --threads 1 --quiet)

photos() { # DIR FIRST COUNT CLASS...
    "$python" "$test_dir/../support/make_photos.py" "$@"
}

number() { # FILE KEY: the number of a member in JSON
    sed -n 's/.*"'"$2"'":[[:space:]]*\([-0-9.e+]*\).*/\1/p' "$1" | head -1
}

at_least() { # WANT VALUE
    awk -v want="$1" -v value="$2" 'BEGIN { exit !(value + 0 >= want + 0) }'
}

# Lessons are as short as they can be: what counts here is that nothing falls to chance, neither new classes nor old
# ones. Two times chance is asked for, of three classes 60 per cent.
accuracy() { # MODEL: per cent of the photographs in `fresh` whose classes the model knows
    "$DER" eval "$1" --data fresh --threads 1 --json >eval.json 2>/dev/null && number eval.json top1
}

if ! "$python" -c 'import PIL' 2>/dev/null; then
    skip "a model learns photographs" "no python3-pil"
    done_testing
fi
photos fresh 500 15 apple book tent ring cross fence
mkdir home away

# Three classes.
photos new 0 24 apple book tent
expect_code 0 "three classes are learnt" "$DER" learn home/things.safetensors --new new "${flags[@]}"
check "and told" grep -q '^home/things.safetensors knows 3 classes: 3 new, 0 joined' out
check "with accuracy on held-out pictures" grep -q 'new classes .* of 15 held-out pictures' out
first=$(accuracy home/things.safetensors)
echo "# top-1 of three classes: $first"
check "photographs it has never seen are told apart" at_least 60 "$first"
expect_code 0 "a photograph is named" "$DER" predict home/things.safetensors fresh/apple/500.jpg --threads 1
check "by a class" grep -Eq 'apple|book|tent' out

# The model alone can predict elsewhere, but not learn on.
mkdir alone
cp home/things.safetensors alone
expect_code 0 "a model without its companions predicts" "$DER" predict alone/things.safetensors \
    fresh/tent/501.jpg --threads 1
photos new2 0 24 ring cross
expect_code 1 "but does not learn on" "$DER" learn alone/things.safetensors --new new2 "${flags[@]}"
check "and says what is missing" grep -q 'alone/things.exemplars.safetensors is missing' err

# Companions are not overwritten by a model that they do not belong to.
mkdir beside
cp home/things.state.safetensors beside
expect_code 1 "a new model leaves the files of another alone" "$DER" learn beside/things.safetensors --new new2 "${flags[@]}"
check "and names them" one_line err "beside/things.state.safetensors is there, but not its model"
expect_code 1 "as does one without an ending" "$DER" learn home/things --new new2 "${flags[@]}"
check "whose companions would be the same" one_line err "home/things.exemplars.safetensors is there"
expect_code 2 "no pictures kept cannot be asked for" "$DER" learn none.safetensors --new new2 --memory 0
expect_code 2 "nor a model without a name" "$DER" learn '' --new new2 "${flags[@]}"
check "which leaves nothing" test ! -e .lock

# All three files in another folder, the pictures gone.
mv home/things*.safetensors away
rm -r new
model=away/things.safetensors
expect_code 0 "two more classes are learnt elsewhere" "$DER" learn "$model" --new new2 "${flags[@]}" --json
check "two are new" test "$(number out new_classes)" = 2
check "old ones are tested before" at_least 60 "$(number out old_before)"
second=$(accuracy "$model")
echo "# top-1 of five classes: $second"
check "five classes are told apart" at_least 40 "$second"

# One more.
photos new3 0 24 fence
expect_code 0 "a single class is learnt" "$DER" learn "$model" --new new3 "${flags[@]}" --json
check "it is the sixth" test "$(number out classes)" = 6
third=$(accuracy "$model")
echo "# top-1 of six classes: $third"
check "six classes are told apart" at_least 33 "$third"

# The same pictures again, with some that are new and one that is broken.
photos new3 24 6 fence
echo rubbish >new3/fence/broken.jpg
expect_code 0 "pictures join a known class" "$DER" learn "$model" --new new3 "${flags[@]}" --json
check "none is new" test "$(number out new_classes)" = 0
check "one was joined" test "$(number out joined_classes)" = 1
check "those that were kept are left out" test "$(number out known_pictures)" = 17
check "the broken one is left out" test "$(number out bad_pictures)" = 1
check "and named" grep -q 'warning: .*broken.jpg' err
expect_code 3 "or is the end of it" "$DER" learn "$model" --new new3 "${flags[@]}" --bad-images stop
check "and named again" grep -q 'broken.jpg' err

# Lessons that do not come to their end.
photos new4 100 20 apple
mv new4/apple new4/pear
cp -r away kept
long=("$DER" learn "$model" --new new4 "${flags[@]}" --epochs 100000)
"${long[@]}" >/dev/null 2>&1 &
pid=$!
for _ in $(seq 600); do
    grep -qsw "$pid" away/things.lock && break # it is there from lessons before
    sleep 0.05
done
expect_code 1 "a second process is refused" "$DER" learn "$model" --new new4 "${flags[@]}"
check "and told by whom" grep -q "things.safetensors is in use by process $pid" err
sleep 1
kill -KILL "$pid"
wait "$pid" 2>/dev/null
check "a killed lesson leaves the old model" diff -r -x '*.lock' away kept
"${long[@]}" >out 2>err &
pid=$!
sleep 2
kill -INT "$pid"
wait "$pid"
code=$?
check "an interrupted lesson fails" test "$code" -eq 1
check "says so" grep -q 'away/things.safetensors is as it was' err
check "and leaves the old model" diff -r -x '*.lock' away kept
ln -s "$model" now
ls away >before
expect_code 0 "which goes on learning, by the name of a link too" "$DER" learn now --new new4 "${flags[@]}" --epochs 2
check "from where it was" grep -q 'now knows 7 classes: 1 new, 0 joined' out
check "which stays a link" test -L now
check "with nothing beside it" test "$(echo now*)" = now
ls away >after
check "and nothing new beside the model" cmp before after
done_testing
