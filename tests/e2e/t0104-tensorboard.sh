#!/bin/bash
# --tensorboard: TensorBoard's own reader sees what metrics.jsonl says, also of a run that was killed and resumed.
# labels: first
. "$(dirname "$0")/../support/test-lib.sh"
# shellcheck source=../support/runs.sh
. "$test_dir/../support/runs.sh"

python=$root/build/deps/exchange/bin/python
check_events() { # NAME FOLDER RUN
    if "$python" -c 'import tensorboard, PIL' 2>/dev/null; then
        check "$1" "$python" -B "$test_dir/check_events.py" "$2" "$3/metrics.jsonl"
    else
        skip "$1" "no TensorBoard: tools/fetch_exchange.sh build/deps/exchange"
    fi
}

expect_code 0 "a run without events" "$DER" train "${run_flags[@]}" --out plain
expect_code 0 "a run with events" "$DER" train "${run_flags[@]}" --out whole --tensorboard events
check "events change nothing about the run" same_run plain whole
check_events "TensorBoard reads what metrics.jsonl says" events whole

# Killed twice, an epoch after a save, so that some events come again: in the first stage of step 2, whose saves
# are at lines 11, 13 and so on, and in the second.
killed_at half 14 0 "$DER" train "${run_flags[@]}" --out half --tensorboard torn
killed_at half 20 0 "$DER" train --out half --resume --threads 1 --save-every 2 --tensorboard torn
expect_code 0 "a killed run goes on" "$DER" train --out half --resume --threads 1 --save-every 2 --quiet \
    --tensorboard torn
check "it has a file for each of its lives" test "$(find torn -name 'events.out.tfevents.*' | wc -l)" -eq 3
check_events "no curve doubles, none has a gap" torn half
check "the run ends as if nothing had happened" same_run whole half

# A run that begins anew in the same place hides the old one.
expect_code 0 "another run into the same folder" "$DER" train "${run_flags[@]}" --seed 5 --out other --tensorboard events
check_events "only the new one is seen" events other

plain_flags=("${run_flags[@]:0:${#run_flags[@]}-2}") # without a wanted size, which wants masks
expect_code 0 "events of fine-tuning" "$DER" train "${plain_flags[@]}" --method finetune --out tuned --tensorboard tuning
check_events "have neither masks nor gaps" tuning tuned
expect_code 0 "events of joint training" "$DER" train "${plain_flags[@]}" --method joint --out joint --tensorboard bound
check_not "which keeps no exemplars" grep -rq PNG bound

# What is trained to be compared with has curves of its own.
expect_code 0 "events of a run with transfer" \
    "$DER" train "${run_flags[@]}" --measure transfer --out compared --tensorboard compared-events
check_events "have no curve twice" compared-events compared
for group in reference 'reference classifier'; do
    check "there is one of the $group" grep -raq "$group/loss/main" compared-events
done

touch file
expect_code 3 "a folder that cannot be made is told before training" "$DER" train "${run_flags[@]}" --tensorboard file
check "in one line" grep -q '^der: cannot make folder file' err
expect_code 0 "a run need not be kept to be seen" "$DER" train "${run_flags[@]}" --max-steps 1 --tensorboard alone
check "its events are" test "$(find alone -name 'events.out.tfevents.*' | wc -l)" -eq 1

done_testing
