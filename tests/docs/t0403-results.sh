#!/bin/bash
# tools/results.py: the tables in the documents are those of docs/results, and a change of either is noticed.
. "$(dirname "$0")/../support/test-lib.sh"
expect_code 0 "the tables are those of docs/results" python3 "$root/tools/results.py" --check

fresh() { # a copy of what it reads and writes
    rm -rf tree
    mkdir -p tree/docs tree/tools
    cp "$root/tools/results.py" tree/tools
    cp "$root/README.md" tree
    cp -r "$root/docs/RESULTS.md" "$root/docs/results" tree/docs
}

fresh
expect_code 0 "a copy is in order" python3 tree/tools/results.py --check
awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "top1") at = i } NR == 2 { $at = 1.25 } 1' \
    "$root/docs/results/steps.csv" >tree/docs/results/steps.csv
check_fails "another accuracy in the data is noticed" python3 tree/tools/results.py --check
check "by the document that has it" grep -q 'tables of docs/RESULTS.md are not' err
fresh
sed -i '/^| DER, 10 steps/s/| [0-9.]* |/| 0 |/' tree/README.md
check_fails "another number in a table is noticed" python3 tree/tools/results.py --check
check "by the document that has it" grep -q 'tables of README.md are not' err
mkdir empty
check_fails "a folder without finished runs is refused" python3 tree/tools/results.py empty
check "in a sentence" grep -q 'no run in empty is finished' err
done_testing
