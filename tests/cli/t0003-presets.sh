#!/bin/bash
# `der presets`: the list, the settings of one, overrides, JSON, and what is refused.
. "$(dirname "$0")/../support/test-lib.sh"

has() { # KEY VALUE: the listing in `out` has this line
    awk -v key="$1" -v value="$2" '$1 == key && $2 == value { found = 1 } END { exit !found }' out
}

expect_code 0 "der presets succeeds" "$DER" presets
for name in cifar100-b0-{5,10,20,50} cifar100-b50-{2,5,10} cifar100-b0-{5,10,20,50}-rn32 \
    cifar100-b50-{2,5,10}-rn32 imagenet100-b0-10 imagenet100-b50-10 imagenet1000-b0-10 \
    fashion-mnist-5 custom; do
    check "it lists $name with a summary" grep -Eq "^$name +[A-Za-z]" out
done
check "and nothing else" test "$(wc -l <out)" -eq 19

expect_code 0 "the settings of a preset are shown" "$DER" presets cifar100-b50-10
cp out b50
check "the memory mode of B50" has memory_mode per-class
check "the memory of B50" has memory 20
check "the schedule of step 1" has first_drops 60,120,160
check "every line has key, value and help" \
    awk 'NF < 3 { exit 1 }' out
expect_code 0 "the other protocol" "$DER" presets cifar100-b0-10
check "keeps 2000 in total" has memory 2000
check "as a total" has memory_mode total

expect_code 0 "settings can be changed, in any order" \
    "$DER" presets cifar100-b0-10 --set drops=12 --method finetune --set epochs=30
check "the schedule is squeezed" has warmup_epochs 2
check "an explicit value wins" has drops 12
check "the method sets its switches" has expand false
expect_code 0 "the name may follow the options" "$DER" presets --set=epochs=30 cifar100-b0-10
check "and the override counts" has drops 19,23

expect_code 0 "one preset as JSON" "$DER" presets cifar100-b50-10 --json
check "switches and lists have their types" grep -Eq '"first_drops":.*\[60, 120, 160\]' out
check "as many settings as in the listing" test "$(grep -c '^	"' out)" -eq "$(wc -l <b50)"
expect_code 0 "all presets as JSON" "$DER" presets --json
check "one object each" test "$(grep -c '"preset":' out)" -eq 19
if command -v python3 >/dev/null; then
    check "and a program can read it" python3 -c '
import json, sys
presets = json.load(open("out"))
assert len(presets) == 19
for p in presets:
    mode = "per-class" if "-b50-" in p["preset"] else "total"
    assert p["memory_mode"] == mode, p
    assert len(p) == len(presets[0])
'
else
    skip "and a program can read it" "no python3"
fi

expect_code 2 "an unknown preset is a usage error" "$DER" presets cifar100-b0-11
check "and a known one is suggested" one_line err "did you mean 'cifar100-b0-10'"
expect_code 2 "an unknown setting is a usage error" "$DER" presets custom --set lamda_s=1
check "and a known one is suggested" one_line err "did you mean 'lambda_s'"
expect_code 2 "a value out of range is a usage error" "$DER" presets custom --set momentum=1.5
check "and the range is named" one_line err "momentum=1.5 is refused: .* below 1"
expect_code 2 "what the protocol fixes is refused" "$DER" presets cifar100-b50-2 --set memory=2000
check "and the free preset is named" one_line err "'custom' leaves it free"
expect_code 2 "so is a protocol's memory mode" \
    "$DER" presets cifar100-b0-10 --set memory_mode=per-class
expect_code 0 "which custom takes" "$DER" presets custom --set memory=7 --set memory_mode=per-class
expect_code 2 "settings that contradict each other are refused" \
    "$DER" presets cifar100-b0-10 --set expand=false
check "with what to do" one_line err "set prune=false"
expect_code 2 "an unknown method is refused" "$DER" presets custom --method dre
expect_code 2 "an assignment needs an equals sign" "$DER" presets custom --set lr
expect_code 2 "a flag takes no value" "$DER" presets --json=yes
expect_code 2 "a mistyped flag is a usage error" "$DER" presets --jsn
check "and the right one is suggested" one_line err "did you mean '--json'"
expect_code 2 "one name is enough" "$DER" presets custom custom
expect_code 2 "overrides want a preset" "$DER" presets --set lr=1

done_testing
