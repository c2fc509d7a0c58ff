#!/bin/bash
# setup.sh with nothing to do, and with packages missing that it may not install.
. "$(dirname "$0")/../support/test-lib.sh"

export DER_NO_INSTALL=1
expect_code 0 "succeeds where everything is there" "$root/tools/setup.sh"

# A search path without cmake and clang, but with all that the script itself uses.
mkdir bin
for tool in bash sh cc make nm git python3 mktemp rm sed sort id cat env printf; do
    path=$(command -v "$tool") && ln -sf "$path" "bin/$tool"
done
PATH=$PWD/bin expect_code 1 "stops where something is missing" bash "$root/tools/setup.sh"
check "names cmake" grep -q '^setup: missing packages: .*cmake' err
check "names clang" grep -q '^setup: missing packages: .*clang' err
check "does not name what is there" sh -c '! grep -q libcmocka-dev err'

done_testing
