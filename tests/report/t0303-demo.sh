#!/bin/bash
# The page of the demonstration in headless Chromium: a short demonstration, by the same script.
# labels: first long
. "$(dirname "$0")/../support/test-lib.sh"
# shellcheck source=../support/browser.sh
. "$test_dir/../support/browser.sh"

expect_code 0 "a short demonstration" bash "$root/tools/demo.sh" "$DER" . --short
check "three methods after five steps each" test "$(grep -Ec '^(der|finetune|joint) +accuracy( +([0-9.]+%|-)){5}$' out)" -eq 3
check "it ends by naming its page" test "$(tail -n 1 out)" = "To look at: $PWD/demo.html"
check_page "demonstration" demo.html demo demo/der demo/finetune demo/joint
done_testing
