#!/bin/bash
# The page in headless Chromium: of a run that was trained, of five runs, of a huge one, of one whose classes are called
# like HTML, and of one that goes on.
# labels: first long
. "$(dirname "$0")/../support/test-lib.sh"
# shellcheck source=../support/runs.sh
. "$test_dir/../support/runs.sh"

# shellcheck source=../support/browser.sh
. "$test_dir/../support/browser.sh"

make_run() { # OUT OPTIONS...
    python3 "$root/tests/support/make_run.py" "$DER" "$@"
}

expect_code 0 "a run" "$DER" train "${run_flags[@]}" --measure representation --out trained
expect_code 0 "its page" "$DER" report trained -o trained.html
check_page "trained run" trained.html run trained
check "its images are there" grep -q 'data:image/png;base64,' trained.html

for i in 1 2 3; do
    make_run "five-$i" --seed "$i"
done
make_run five-4 --set prune=false
make_run five-5 --set lambda_a=0.5 --set prune=false --until 3
expect_code 0 "a page of five runs" "$DER" report five-* -o five.html
check_page "five runs" five.html runs five-1 five-2 five-3 five-4 five-5

for name in lambda_s=0.25.order1 lambda_s=0.5.order1 order1 order2; do
    make_run "preset.der.$name"
done
expect_code 0 "a page of a sweep" "$DER" report preset.der.lambda* preset.der.order1 -o sweep.html
check_page "sweep" sweep.html labels der.lambda_s=0.25 der.lambda_s=0.5 der
expect_code 0 "a page of two values" "$DER" report preset.der.lambda* -o values.html
check_page "two values" values.html labels lambda_s=0.25 lambda_s=0.5
expect_code 0 "a page of two orders" "$DER" report preset.der.order* -o orders.html
check_page "two orders" orders.html labels order1 order2

make_run early --classes 8 --steps 8 --seed 3
make_run one-of-two-names-that-begin-alike-a --classes 20 --steps 20
make_run one-of-two-names-that-begin-alike-b --classes 20 --steps 20 --seed 2
expect_code 0 "a page of runs that end at different steps" "$DER" report early one-* -o ends.html
check_page "different ends" ends.html ends

make_run big --classes 1000 --steps 50 --epochs 170
expect_code 0 "a page of a huge run" "$DER" report big -o big.html
check_page "huge run" big.html run big

make_run names --name '<script>hacked = 1</script>' --name '</script><img src=x onerror=hacked=1>' \
    --name "\"'&amp;<b>bold</b>" --name $'line\xe2\x80\xa8separator' --name '__proto__' --name 'constructor' \
    --name '<!--' --data "it's \"quoted\"</script>"
mv names "it's \"quoted\" <b>"
expect_code 0 "a page of classes called like HTML" "$DER" report "it's \"quoted\" <b>" -o names.html \
    --title '<script>hacked=1</script> & "more"'
check_page "hostile names" names.html names "it's \"quoted\" <b>"

make_run going --until 2
make_run whole
"$DER" report going -o going.html --follow 1 >out 2>err &
pid=$!
until [ -s going.html ] || ! kill -0 "$pid"; do
    sleep 0.05
done 2>/dev/null
check_page "unfinished run" going.html follow going "cp whole/*.safetensors whole/metrics.jsonl going/"
wait "$pid"
check "following ends with the run" test $? -eq 0

done_testing
