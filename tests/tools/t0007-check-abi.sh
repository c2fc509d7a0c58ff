#!/bin/bash
# check_abi.sh tells additions from what breaks programs, and minds what was released.
. "$(dirname "$0")/../support/test-lib.sh"

abi=$root/tools/check_abi.sh
mkdir -p tree/include/der tree/build
export DER_CHECK_ROOT=$PWD/tree
printf '## [Unreleased]\n' >tree/CHANGELOG.md

header='#include <stdbool.h>
enum der_colour { DER_RED, DER_BLUE = 4 };
enum { DER_MOST = 3 };
enum { OTHERS_MOST = 3 };
struct der_opaque;
struct der_point { int x; double y; bool seen; };
typedef void der_paint_fn(enum der_colour colour);
int der_area(const struct der_point *corners, int n);
void der_draw(struct der_opaque *on, der_paint_fn *with);'
code='int der_area(const struct der_point *c, int n) { return c ? n : 0; }
void der_draw(struct der_opaque *on, der_paint_fn *with) { if (on) with(DER_RED); }'

library() { # HEADER CODE [SONAME]
    echo "$1" >tree/include/der/der.h
    echo "#include <der/der.h>
$2" | cc -x c - -Itree/include -shared -fPIC "-Wl,-soname,${3:-libder.so.0.1}" -o tree/build/libder.so
}

changed() { # SED-SCRIPT: a library with this done to its header and code
    library "$(sed "$1" <<<"$header")" "$(sed "$1" <<<"$code")"
}

breaks() { # NAME SED-SCRIPT FACT: refused, the fact is named as gone
    changed "$2"
    check_fails "refuses $1" "$abi"
    check "and calls it a break" grep -q 'built against libder.so.0.1 would break' out
    check "and names it" grep -q "^gone: $3" out
}

library "$header" "$code"
check_fails "a missing reference is refused" "$abi"
DER_UPDATE=1 check "and made on request" "$abi"
check "it holds a line for everything" diff - tree/tests/abi/libder.abi <<'ABI'
soname libder.so.0.1
enum der_colour: DER_RED = 0
enum der_colour: DER_BLUE = 4
enum : DER_MOST = 3
struct der_point: 24 bytes, aligned to 8, 3 members
struct der_point: x at 0, int
struct der_point: y at 8, double
struct der_point: seen at 16, bool
type der_paint_fn: void (enum der_colour)
function der_area: int (const struct der_point *, int)
function der_draw: void (struct der_opaque *, der_paint_fn *)
ABI
check "accepts the library itself" "$abi"
library "$header" "$code static int helper = 3; int der_area(const struct der_point *, int); int helped(void);
    int helped(void) { return helper; }"
check "does not mind what is no part of the interface" "$abi"

breaks "a removed function" '/der_area/d' 'function der_area'
breaks "another parameter" 's/\(int der_area.*\)int n)/\1long n)/' 'function der_area'
breaks "another return type" 's/^int der_area/long der_area/' 'function der_area'
breaks "a longer structure" 's/bool seen;/bool seen; double z;/' 'struct der_point: 24 bytes'
breaks "a member in the padding" 's/int x;/int x; int w;/' 'struct der_point: 24 bytes.* 3 members'
breaks "members that change places" 's/int x; double y;/double y; int x;/' 'struct der_point: x at 0'
breaks "a member of another type" 's/int x;/unsigned x;/' 'struct der_point: x at 0, int'
breaks "another value of an enumerator" 's/DER_BLUE = 4/DER_BLUE = 5/' 'enum der_colour: DER_BLUE = 4'
breaks "another value of a constant" 's/DER_MOST = 3/DER_MOST = 4/' 'enum : DER_MOST = 3'
breaks "another type of a callback" 's/(enum der_colour colour)/(int colour)/' 'type der_paint_fn'
library "$header" 'int der_area(const struct der_point *c, int n) { return c ? n : 0; }'
check_fails "refuses a library without a function that the header declares" "$abi"
check "and names it" grep -q '^gone: function der_draw' out

more=$header$'\nint der_more(void);'
library "$more" "$code int der_more(void) { return 1; }"
check_fails "an addition wants the reference renewed" "$abi"
check "and is called an addition" grep -q 'additions alone' out
check "and named" grep -q '^new:  function der_more: int (void)' out
DER_UPDATE=1 check "it is renewed on request" "$abi"
check "and then fits" "$abi"

changed '/der_area/d'
DER_UPDATE=1 check "what no release has carried may break" "$abi"
library "$header" "$code"
DER_UPDATE=1 check "back to where we were" "$abi"
printf '## [Unreleased]\n\n## [0.1.0] - 2001-01-01\n' >tree/CHANGELOG.md
cp tree/tests/abi/libder.abi before.abi
changed '/der_area/d'
DER_UPDATE=1 check_fails "what a release has carried may not" "$abi"
check "it says to raise the version" grep -q 'raise DER_VERSION_MINOR' out
check "and the reference stays" cmp tree/tests/abi/libder.abi before.abi
library "$(sed '/der_area/d' <<<"$header")" "$(sed '/der_area/d' <<<"$code")" libder.so.0.2
check_fails "another soname wants the reference renewed" "$abi"
DER_UPDATE=1 check "it may break everything" "$abi"
check "and is then the one to compare with" "$abi"

library "$(sed 's/int x;/int x : 3;/' <<<"$header")" "$code"
check_fails "refuses bit-fields, whose place C does not tell" "$abi"
check_fails "refuses a library that is not there" "$abi" build/none.so

done_testing
