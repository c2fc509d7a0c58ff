#!/bin/bash
# `der report` without a browser: what it refuses, what it says, and the CSV.
. "$(dirname "$0")/../support/test-lib.sh"

make_run() { # OUT OPTIONS...
    python3 "$root/tests/support/make_run.py" "$DER" "$@"
}

expect_code 2 "a run is required" "$DER" report -o page.html
check "and asked for" one_line err "RUN is missing"
expect_code 2 "so is a file" "$DER" report somewhere
check "of one kind or the other" one_line err "-o FILE for the page, --csv FILE for the numbers"
expect_code 2 "an unknown option is refused" "$DER" report run --cvs x
check "and a known one suggested" one_line err "did you mean '--csv'"
expect_code 2 "times are not negative" "$DER" report run -o page.html --follow -3

# ---- folders that are no runs ----------------------------------------------------------------------

expect_code 3 "a folder that is not there" "$DER" report nowhere -o page.html
check "is named" one_line err "^der: nowhere is not there"
mkdir empty
expect_code 3 "an empty folder" "$DER" report empty -o page.html
check "is called empty" one_line err "^der: empty is empty: no run has begun there"
mkdir foreign
echo mine >foreign/notes.txt
expect_code 3 "somebody else's folder" "$DER" report foreign -o page.html
check "is called foreign" one_line err "^der: foreign holds something, but no run"
echo mine >file
expect_code 3 "a file" "$DER" report file -o page.html
check "is named" one_line err "file"
check "nothing was written" test ! -e page.html

if ! command -v python3 >/dev/null; then
    skip "runs made by hand" "no python3"
    done_testing
fi

make_run newer --format 2
expect_code 3 "a run of a newer version" "$DER" report newer -o page.html
check "is told so" one_line err "newer/config.json has format 2; this program reads format 1"
make_run damaged
sed -i 's/"top1": [0-9.]*/"top1": 250/' damaged/metrics.jsonl
expect_code 3 "a damaged run" "$DER" report damaged -o page.html
check "is named with file, line and number" one_line err "damaged/metrics.jsonl: line [0-9]*: 'top1' must lie between"
make_run cut
truncate -s 300 cut/predictions.safetensors
expect_code 3 "a truncated file" "$DER" report cut -o page.html
check "is named" one_line err "cut/predictions.safetensors"
make_run one
expect_code 3 "of several runs the bad one is named" "$DER" report one newer -o page.html
check "and no other" one_line err "newer/config.json"
check "nothing was written" test ! -e page.html

# ---- runs ------------------------------------------------------------------------------------------

expect_code 0 "a run" "$DER" report one -o page.html
check "says what was written" grep -Eqx 'page.html: 1 run, [0-9]+ kB' out
check "the page is whole" grep -q '^</html>$' page.html
check_not "and needs nothing from elsewhere" grep -Eq '(src|href)=["'\'']?(https?:)?//' page.html
cp page.html first.html
expect_code 0 "once more" "$DER" report one -o page.html
check "gives the same bytes" cmp page.html first.html
cp -r one $'caf\xe9'
sed -i $'s/"data": "/"data": "\xff/' $'caf\xe9/config.json'
expect_code 0 "names that are no UTF-8" "$DER" report $'caf\xe9' -o odd.html
check "make a page that is" python3 -c 'assert "caf\ufffd" in open("odd.html", encoding="utf-8").read()'
make_run going --until 2
make_run begun --until 0
expect_code 0 "runs that go on" "$DER" report going begun one/ -o page.html --csv numbers.csv --quiet
check "are no reason to speak" test ! -s out
check "a quiet one says nothing at all" test ! -s err

# ---- CSV -------------------------------------------------------------------------------------------

check "one line for every step of every run" test "$(wc -l <numbers.csv)" -eq 8
expect_code 2 "files of a run are not written over" "$DER" report one/ --csv one/metrics.jsonl
check "and are named" one_line err "--csv would replace one//metrics.jsonl"
python3 - >csv.out 2>&1 <<'END'
import csv, json
rows = list(csv.DictReader(open("numbers.csv")))
assert [r["run"] for r in rows] == ["going"] * 2 + ["one/"] * 5
for folder in ("going", "one/"):
    steps = [json.loads(l) for l in open(folder + "/metrics.jsonl") if l.endswith("\n") and '"step", "step"' in l]
    mine = [r for r in rows if r["run"] == folder]
    assert len(mine) == len(steps)
    for step, row in zip(steps, mine):
        for key, value in step.items():
            if isinstance(value, (int, float)):
                assert float(row[key]) == value, (key, row[key], value)
        for k, value in enumerate(step["groups"]):
            assert float(row[f"group_{k + 1}"]) == value
        assert all(row[f"group_{k + 1}"] == "" for k in range(len(step["groups"]), 5))
        assert row["method"] == "der" and row["order"] == "seed:1"
END
report $? "the numbers are those of metrics.jsonl, to the last digit" csv.out
expect_code 0 "the CSV alone" "$DER" report one --csv alone.csv
check "is written alone" test "$(cat out)" = alone.csv

done_testing
