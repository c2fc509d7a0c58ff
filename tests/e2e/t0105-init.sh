#!/bin/bash
# Runs that begin with weights of others go on exactly, and need the file as long as a network is yet to begin.
. "$(dirname "$0")/../support/test-lib.sh"
# shellcheck source=../support/runs.sh
. "$test_dir/../support/runs.sh"

resume=("$DER" train --resume --threads 1 --save-every 2 --quiet --out)
plain_flags=("${run_flags[@]:0:${#run_flags[@]}-2}") # without a wanted size, which wants masks

expect_code 0 "weights to begin with" "$DER" train "${plain_flags[@]}" --method finetune --seed 7 --max-steps 1 --out source
expect_code 0 "are imported" "$DER" import source/model.safetensors --network resnet18-cifar --width 0.12 --out weights
cp weights kept
expect_code 0 "a run that nobody disturbs" "$DER" train "${run_flags[@]}" --init weights --out whole

killed_at half 5 0 "$DER" train "${run_flags[@]}" --init weights --out half
cp -r half before
rm weights
expect_code 0 "once its network has begun, a killed run needs the file no more" "${resume[@]}" half
check "and ends as if nothing had happened" same_run whole half

cp -r before fresh
rm fresh/state.safetensors
expect_code 3 "a run without a state needs it" "${resume[@]}" fresh
check "and says so" one_line err 'cannot open weights'
"$DER" import source/model.safetensors --network resnet18-cifar --width 0.12 --out other >/dev/null
printf '\x42' | dd of=other bs=1 seek=20000 conv=notrunc 2>/dev/null
expect_code 2 "other weights are refused" "${resume[@]}" fresh --init other
check "by their checksum" one_line err 'other is not the file of weights that the run was started with (weights)'
expect_code 0 "the file may lie elsewhere" "${resume[@]}" fresh --init kept
check "and the run ends the same" same_run whole fresh

expect_code 0 "a run at random" "$DER" train "${run_flags[@]}" --max-steps 1 --out random
rm random/state.safetensors
expect_code 2 "cannot go on with weights" "${resume[@]}" random --init kept --max-steps 1
check "and says so" one_line err 'random was started without the weights of kept'

# Joint training begins a network at every step.
joint=("$DER" train "${plain_flags[@]}" --method joint --init kept)
expect_code 0 "joint training begins with weights" "${joint[@]}" --out bound
killed_at torn 10 0 "${joint[@]}" --out torn
expect_code 0 "and again when it goes on" "${resume[@]}" torn
check "to the same end" same_run bound torn

# What forward transfer is measured against begins at random, whatever the run begins with.
references() { # RUN
    grep -o '"reference[a-z_]*":[^,]*' "$1/metrics.jsonl"
}
joint=("$DER" train "${plain_flags[@]}" --method joint --measure transfer)
expect_code 0 "transfer of a run that begins with weights" "${joint[@]}" --init kept --out lent
expect_code 0 "and of one at random" "${joint[@]}" --out own
references lent >lent.references
check "is measured" test -s lent.references
references own >own.references
check "against the same networks" cmp lent.references own.references

cp kept weights
transfer=("$DER" train "${run_flags[@]}" --measure transfer --init weights)
expect_code 0 "a run with transfer" "${transfer[@]}" --out measured
killed_at rest 5 0 "${transfer[@]}" --out rest
rm weights
expect_code 0 "needs the weights no more once it has begun" "${resume[@]}" rest
check "and ends the same" same_run measured rest

done_testing
