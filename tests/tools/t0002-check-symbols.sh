#!/bin/bash
# check_symbols.sh accepts a library that matches its headers and refuses the others.
. "$(dirname "$0")/../support/test-lib.sh"

mkdir headers
cat >headers/lib.h <<'H'
/* The result of DER_API der_comment() is no declaration. */
DER_API const char *der_one(void);
DER_API DER_NODISCARD enum der_status der_two(const struct der_options *options,
                                              struct der_thing **out);
H
good='const char *der_one(void) { return ""; } int der_two(void) { return 0; }'

library() { # C-CODE
    rm -f lib.so
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <assert.h>\n%s\n' "$1" |
        cc -x c - -O1 -fno-builtin -shared -fPIC -o lib.so
}

refuses() { # NAME C-CODE
    library "$2"
    check_fails "refuses $1" "$root/tools/check_symbols.sh" lib.so headers
}

library "$good"
check "accepts a library that matches its headers" "$root/tools/check_symbols.sh" lib.so headers
refuses "an exported name without the prefix" "$good void helper(void) {}"
refuses "an exported variable without the prefix" "$good int counter;"
refuses "an exported function that no header declares" "$good void der_three(void) {}"
refuses "a declared function that is missing" 'const char *der_one(void) { return ""; }'
for call in 'exit(1)' 'abort()' 'printf("%d", 1)' 'puts("x")' 'fprintf(stderr, "x")' 'srand(rand())' \
    'assert(getenv("x"))'; do
    refuses "a library that calls $call" "$good static void f(void) { $call; } void *der_keep(void);
        const char *der_one(void); __attribute__((constructor)) static void g(void) { f(); }"
    check "and says what is forbidden" grep -q '^used, but forbidden' out
done
check_fails "refuses a library that is not there" "$root/tools/check_symbols.sh" none.so headers

done_testing
