#!/bin/bash
# check_headers.sh refuses headers that lean on what was included before them.
. "$(dirname "$0")/../support/test-lib.sh"

headers=$root/tools/check_headers.sh
mkdir -p tree/include/der tree/src/core
export DER_CHECK_ROOT=$PWD/tree
echo 'int der_f(int);' >tree/include/der/der.h
printf '%s\n' '#include <stddef.h>' 'size_t g(void);' >tree/src/core/a.h
check "accepts headers that stand alone" "$headers"
echo 'size_t h(void);' >tree/src/core/b.h
check_fails "refuses a header that needs another" "$headers"
check "and names it" grep -q 'src/core/b.h does not compile' out
rm tree/src/core/b.h
echo 'int der_g(int class);' >tree/include/der/der.h
check_fails "refuses a public header that is no C++" "$headers"
rm -rf tree/*
check_fails "refuses to be content with nothing" "$headers"

done_testing
