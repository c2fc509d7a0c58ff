#!/bin/bash
# The demonstration itself, minutes long, and its page in headless Chromium.
# labels: slow
. "$(dirname "$0")/../support/test-lib.sh"
# shellcheck source=../support/browser.sh
. "$test_dir/../support/browser.sh"

expect_code 0 "DER ends at least 8 points above fine-tuning" bash "$root/tools/demo.sh" "$DER" .
check "it ends by naming its page" test "$(tail -n 1 out)" = "To look at: $PWD/demo.html"
check_page "demonstration" demo.html demo demo/der demo/finetune demo/joint
done_testing
