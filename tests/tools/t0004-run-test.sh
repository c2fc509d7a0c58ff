#!/bin/bash
# run_test.sh counts what a test program really achieved.
. "$(dirname "$0")/../support/test-lib.sh"

run=$root/tools/run_test.sh

counts() { # NAME WANTED-COUNT CODE SCRIPT: the script plays the test program
    printf '%s\n' "$4" >program.sh
    expect_code "$3" "$1: exit status" "$run" "$PWD/result" sh program.sh
    check "$1: count" grep -Eqx "$2 [0-9.]+" result.count
}

counts "two good cases" "2 0 0" 0 'echo 1..2; echo ok 1 - a; echo ok 2 - b'
counts "plan at the end" "2 0 0" 0 'echo ok 1 - a; echo ok 2 - b; echo 1..2'
counts "one bad case" "1 1 0" 1 'echo 1..2; echo ok 1 - a; echo not ok 2 - b; exit 1'
counts "bad case, exit status 0" "0 1 0" 1 'echo 1..1; echo not ok 1 - a'
counts "skipped case" "1 0 1" 0 'echo 1..2; echo ok 1 - a; echo "not ok 2 # SKIP b"'
counts "death half way" "1 2 0" 1 'echo 1..3; echo ok 1 - a; kill -SEGV $$'
counts "death after the last case" "1 1 0" 1 'echo 1..1; echo ok 1 - a; kill -SEGV $$'
counts "no case at all" "0 1 0" 1 'true'
counts "cases missing, exit status 0" "1 1 0" 1 'echo 1..2; echo ok 1 - a'
expect_code 1 "missing program: exit status" "$run" "$PWD/result" ./none
check "missing program: count" grep -Eqx "0 1 0 [0-9.]+" result.count

# A real cmocka program: one good case, one bad, one that crashes.
cat >program.c <<'C'
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
static void good(void **state) { (void)state; }
static void bad(void **state) { (void)state; assert_int_equal(1, 2); }
static void skipped(void **state) { (void)state; skip(); }
static void crash(void **state) { *(volatile int *)*state = 1; }
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(good), cmocka_unit_test(bad),
                                       cmocka_unit_test(skipped), cmocka_unit_test(crash)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
C
check "cmocka program compiles" cc program.c -o program -lcmocka
expect_code 1 "cmocka program fails" "$run" "$PWD/result" ./program
check "cmocka cases are counted" grep -Eqx "1 2 1 [0-9.]+" result.count

# Under the address sanitizer a crash ends the program, with a word about the place.
check "it compiles with the sanitizer" cc -fsanitize=address program.c -o program -lcmocka
expect_code 1 "a crash under the sanitizer fails" "$run" "$PWD/result" ./program
check "the sanitizer reports it" grep -q "AddressSanitizer: SEGV" result.log
check "the other cases are counted" grep -Eqx "1 2 1 [0-9.]+" result.count

done_testing
