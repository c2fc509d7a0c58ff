#!/bin/bash
# `der reproduce` with tiny networks on procedural images: rows, files, what is run again and what not.
# labels: first
. "$(dirname "$0")/../support/test-lib.sh"

row='DER, 2 steps'
quick=(--data 'synth:classes=100,train=3,test=2,size=8,seed=1' --threads 1
    --set network=resnet18-cifar --set width=0.06 --set augment=auto --set batch=50
    --set test_batch=50 --set first_lr=0.02 --set lr=0.02 --set classifier_lr=0.02
    --set first_epochs=2 --set classifier_epochs=1)
short=("${quick[@]}" --set epochs=2)

ends() { # KEY FILES...: the number at the end of each run
    local key=$1
    shift
    sed -n '/"event":"end"/s/.*"'"$key"'":\([0-9.e+-]*\).*/\1/p' "$@"
}

column() { # NAME FILE: what the row of this script has there
    local n
    n=$(head -1 "$2" | tr , '\n' | grep -nx "$1" | cut -d: -f1)
    # The label holds a comma, so its row is one field longer than the head.
    grep "^\"$row\"," "$2" | cut -d, -f$((n + 1))
}

close() { # A B: equal up to the digits of the table
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d * d < 1e-14) }'
}

# ---- the list of runs ----------------------------------------------------------------------------

expect_code 0 "a dry run succeeds without data" "$DER" reproduce T8 --out runs --dry-run
check "and lists three orders of six rows" test "$(grep -c '^to do ' out)" -eq 18
check "by row, order and folder" \
    grep -Eq '^to do +DER, 2 steps, order 3 +runs/cifar100-b50-2-rn32.der.order3$' out
check "and makes nothing" test ! -e runs
expect_code 0 "not even for events" "$DER" reproduce T8 --out runs --dry-run --tensorboard events
check "that are asked for" test ! -e events
expect_code 0 "rows and orders can be chosen" \
    "$DER" reproduce T8 --out runs --dry-run --row der-wop --row "$row" --orders 3,1
check "by the paper's name or the label" test "$(grep -c . out)" -eq 8
check_not "and no others are listed" grep -q 'order 2' out

# ---- running ---------------------------------------------------------------------------------------

run=(reproduce T8 "${short[@]}" --out runs --row "$row")
expect_code 0 "a row runs under two orders" "$DER" "${run[@]}" --orders 1,2 --tensorboard events
check "each with events of its own" \
    test "$(ls events/cifar100-b50-2-rn32.der.order{1,2}/events.out.tfevents.* | wc -l)" -eq 2
check "each with its steps" test "$(grep -Ec '^ +[123]/3 ' out)" -eq 6
check "and says where" grep -qx \
    "run 2 of 2: DER, 2 steps, order 2, in runs/cifar100-b50-2-rn32.der.order2" out
check "the title says that it is not the paper's protocol" \
    grep -q "^T8: CIFAR100-B50.*; not the paper's protocol: network=resnet18-cifar width=0.06" out
check "the row stands beside the paper's" \
    grep -Eq '^\| DER, 2 steps +\| +2 \|.* \+- .*\| +0.32 \| +69.52 \| +-[0-9.]+ \|$' out
check "rows that were not run have no number" \
    grep -Eq '^\| DER, 5 steps +\| +- \| +- \| +- \| +- \| +0.59 \| +67.60 \| +- \|$' out
grep '^|' out >table
check "the same table is in a file" test "$(grep '^|' runs/T8.md)" = "$(cat table)"

cp -r runs done && rm done/T8.*
settings=("${short[@]:4}") # without data and threads
expect_code 0 "what is done makes a table, without data" \
    "$DER" reproduce T8 "${settings[@]}" --out done --threads 1 --table-only
check "of the same numbers" test "$(grep '^| DER, 2 steps' out)" = "$(grep '^| DER, 2 steps' table)"
check "in a file too" grep -q '^| DER, 2 steps' done/T8.md
check "and nothing is run" test "$(ls -d done/*/ | wc -l)" -eq 2

metrics=(runs/cifar100-b50-2-rn32.der.order{1,2}/metrics.jsonl)
for key in avg_top1 last_top1 avg_top5; do
    read -r mean std < <(ends $key "${metrics[@]}" | awk '{ x[NR] = $1; s += $1 } END {
        m = s / NR; for (i = 1; i <= NR; i++) q += (x[i] - m) ^ 2
        printf "%.12g %.12g\n", m, sqrt(q / (NR - 1)) }')
    check "mean of $key" close "$(column $key runs/T8.csv)" "$mean"
    check "deviation of $key" close "$(column ${key}_std runs/T8.csv)" "$std"
done
check "the orders differ, or the deviation would prove nothing" \
    test "$(column avg_top5_std runs/T8.csv)" != 0
check "parameters are millions" close "$(column params_m runs/T8.csv)" \
    "$(ends avg_params "${metrics[@]}" | awk '{ s += $1 } END { printf "%.12g", s / NR / 1e6 }')"
check "the difference is that of the averages" close "$(column difference runs/T8.csv)" \
    "$(awk -v a="$(column avg_top1 runs/T8.csv)" 'BEGIN { printf "%.12g", a - 69.52 }')"

# ---- running again ---------------------------------------------------------------------------------

cp -a runs before
expect_code 0 "once more succeeds" "$DER" "${run[@]}" --orders 1,2
check_not "and runs nothing" grep -q '^run ' out
check "the table is the same" cmp <(grep '^|' runs/T8.md) table
check "the runs were not touched" diff -r before/cifar100-b50-2-rn32.der.order1 \
    runs/cifar100-b50-2-rn32.der.order1
expect_code 0 "a finished table needs no data" "$DER" reproduce T8 "${short[@]:2}" --out runs \
    --row "$row" --orders 1,2
expect_code 0 "one order more" "$DER" "${run[@]}" --quiet
check "is one run more" grep -Eq '^\| DER, 2 steps +\| +3 \|' out
check "and a quiet one prints the table alone" test "$(grep -vc '^|' out)" -eq 2

# A run that is killed: the state is seen, and the run is done from there or anew, with the same result.
long=(reproduce T8 "${quick[@]}" --set epochs=5 --row "$row" --orders 1)
"$DER" "${long[@]}" --out whole --quiet >/dev/null 2>err
folder=cifar100-b50-2-rn32.der.order1
for _ in 1 2 3 4 5; do # in case it is faster than we are
    rm -rf killed
    "$DER" "${long[@]}" --out killed --quiet >/dev/null 2>&1 &
    pid=$!
    until grep -qs '"event":"step"' killed/$folder/metrics.jsonl || ! kill -0 "$pid"; do
        sleep 0.02
    done 2>/dev/null
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    grep -q '"event":"end"' killed/$folder/metrics.jsonl || break
done
expect_code 0 "what a killed run left can be listed" "$DER" "${long[@]}" --out killed --dry-run
check "as partial" grep -q "^partial .*killed/$folder\$" out
check "the table has no number yet" grep -Eq '^\| DER, 2 steps +\| +- \|' killed/T8.md
expect_code 0 "the run is done" "$DER" "${long[@]}" --out killed --quiet
check "with the result of one that was not killed" test \
    "$(ends avg_top1 killed/$folder/metrics.jsonl) $(ends last_top5 killed/$folder/metrics.jsonl)" = \
    "$(ends avg_top1 whole/$folder/metrics.jsonl) $(ends last_top5 whole/$folder/metrics.jsonl)"
check "and every step once" test "$(grep -c '"event":"step"' killed/$folder/metrics.jsonl)" -eq 3

"$DER" reproduce T8 "${quick[@]}" --set epochs=100000 --row "$row" --out slow >out 2>err &
pid=$!
until grep -qs '"event":"step"' slow/$folder/metrics.jsonl || ! kill -0 "$pid"; do
    sleep 0.05
done 2>/dev/null
kill -INT "$pid"
wait "$pid"
code=$?
check "an interrupted table exits with 1" test "$code" -eq 1
check "and says where it stopped" grep -q '^der: .*stopped in epoch' err

# ---- what is refused -------------------------------------------------------------------------------

expect_code 2 "an unknown table is a usage error" "$DER" reproduce T9 --out runs --dry-run
check "and a known one is suggested" one_line err "did you mean 'T1'"
expect_code 2 "an unknown row is a usage error" "$DER" reproduce T8 --out runs --row 'DER, 3 steps'
check "and a known one is suggested" one_line err "did you mean 'DER, 2 steps'"
expect_code 2 "an unknown setting is a usage error" \
    "$DER" reproduce T8 --out runs --dry-run --set lamda_s=1
check "and a known one is suggested" one_line err "did you mean 'lambda_s'"
expect_code 2 "what a row is about stays" "$DER" reproduce T8 --out new --dry-run --set prune=true
check "and the row is named" one_line err "DER without pruning, 2 steps"
expect_code 2 "so do its class orders" "$DER" reproduce T8 --out new --dry-run --set order=2
expect_code 2 "the paper has three orders" "$DER" reproduce T8 --out new --dry-run --orders 1,4
for orders in '1,' ',1' one 1.5 0 1,1 -1 ''; do
    expect_code 2 "orders '$orders' are refused" "$DER" reproduce T8 --out new --dry-run \
        --orders "$orders"
done
expect_code 2 "a table is required" "$DER" reproduce --out new
expect_code 2 "so is a place for the runs" "$DER" reproduce T8 --data "${short[1]}"
check "which is named" one_line err "--out"
expect_code 2 "and data, when there is something to run" "$DER" reproduce T8 --out new
check "with the number of runs" one_line err "18 runs"
check "nothing was made" test ! -e new
expect_code 1 "runs with other settings are not mixed" "$DER" "${run[@]}" --set seed=7
check "and the setting is named" one_line err "seed is 1993, not 7"
expect_code 1 "nor are runs on other images" "$DER" reproduce T8 --data \
    synth:classes=100,train=5,test=2,size=8,seed=1 "${short[@]:2}" --out runs --row der-wop
rm -r runs/cifar100-b50-2-rn32.der.order3
expect_code 1 "nor on as many others" "$DER" reproduce T8 --data \
    synth:classes=100,train=3,test=2,size=8,seed=2 "${short[@]:2}" --out runs --row "$row"
check "which are named" one_line err "seed=2 has as many images as runs/.*order1"
check "and nothing is begun" test ! -e runs/cifar100-b50-2-rn32.der.order3
mkdir -p foreign/$folder
echo mine >foreign/$folder/notes.txt
expect_code 3 "a folder of somebody else's is left alone" \
    "$DER" reproduce T8 "${short[@]}" --out foreign --row "$row" --orders 1
check "and named" one_line err "foreign/$folder holds something"
check "with what it holds" test "$(ls foreign/$folder)" = notes.txt
sed -i 's/"top1":[0-9.]*/"top1":99.5/' before/$folder/metrics.jsonl
expect_code 3 "numbers that do not agree are refused" "$DER" "${run[@]/runs/before}" --orders 1
check "with file, line and number" one_line err "$folder/metrics.jsonl: line [0-9]*: 'avg_top1' is"
expect_code 3 "data that is not there is a data error" "$DER" reproduce T8 --data nowhere --out new

done_testing
