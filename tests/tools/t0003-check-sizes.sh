#!/bin/bash
# check_sizes.sh and check_format.sh refuse what they are there to refuse.
. "$(dirname "$0")/../support/test-lib.sh"

fresh_tree() {
    rm -rf tree
    mkdir -p tree/src tree/tests/golden
    export DER_CHECK_ROOT=$PWD/tree
    cp "$root/.clang-format" tree/
    printf 'int f(void);\n' >tree/src/a.h
    seq 800 >tree/src/long.md
    printf '\0\1\2' >tree/tests/golden/a.safetensors
}

sizes=$root/tools/check_sizes.sh
fresh_tree
check "accepts a good tree" "$sizes"
seq 801 >tree/src/long.c
check_fails "refuses 801 lines of C" "$sizes"
fresh_tree
seq 801 >tree/src/long.md
check_fails "refuses 801 lines of documentation" "$sizes"
fresh_tree
head -c 1048577 /dev/zero >tree/tests/golden/big.safetensors
check_fails "refuses more than 1 MiB, even as test data" "$sizes"
fresh_tree
printf '\177ELF\0\0' >tree/src/program
check_fails "refuses a binary file outside tests" "$sizes"
fresh_tree
mkdir -p tree/docs
printf '\211PNG\0\0' >tree/docs/picture.png
check "accepts a picture of the documentation" "$sizes"
rm -rf tree
mkdir tree
check_fails "refuses to be content with nothing" "$sizes"

# With git, ignored files do not count and new ones do, added or not.
fresh_tree
git -C tree init -q
echo '/big' >tree/.gitignore
head -c 1048577 /dev/zero >tree/big
check "ignored files do not count" "$sizes"
seq 801 >tree/src/new.c
check_fails "files not yet added do count" "$sizes"

format=$root/tools/check_format.sh
fresh_tree
if command -v clang-format-14 >/dev/null; then
    check "well-formed code is accepted" "$format"
    printf 'int  f( void ) ;\n' >tree/src/a.h
    check_fails "ill-formed code is refused" "$format"
    check "and repaired on request" "$format" --fix
    check "after which it is accepted" "$format"
else
    skip "the format of code" "no clang-format 14"
fi

done_testing
