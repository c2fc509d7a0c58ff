#!/bin/bash
# check_abi.sh [LIBRARY]: do programs that were built against the library go on working with it?
#
# Compares what they rely on (abi_text.py) with tests/abi/libder.abi. What is new is an addition; what is
# gone or changed breaks programs, and a release that does so needs another soname. Both are refused
# until the reference is renewed:
#
#     DER_UPDATE=1 tools/check_abi.sh
#
# which in turn refuses to break a soname that a release has carried, as CHANGELOG.md tells. Reads
# DER_CHECK_ROOT (default: this repository).
set -uo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
cd "${DER_CHECK_ROOT:-$tools/..}" || exit 1
library=${1:-build/libder.so}
reference=tests/abi/libder.abi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    printf 'check_abi: %s\n' "$@"
    exit 1
}

soname() { # FILE
    sed -n 's/^soname //p' "$1"
}

facts() { # FILE: all but the soname
    sed '/^soname /d' "$1" | LC_ALL=C sort
}

renew() {
    mkdir -p "$(dirname "$reference")"
    cp "$work/now" "$reference"
    echo "check_abi: $reference is renewed"
    exit 0
}

was_released() { # SONAME: does a version of the changelog carry it?
    local version=${1##*.so.}
    grep -q "^## \[${version//./\\.}\." CHANGELOG.md
}

"$tools/abi_text.py" "$library" include/der/der.h >"$work/now" || fail "cannot tell what $library offers"
update=${DER_UPDATE:-0}
if [ ! -f "$reference" ]; then
    [ "$update" = 1 ] && renew
    fail "$reference is missing; DER_UPDATE=1 makes it"
fi

old=$(soname "$reference")
new=$(soname "$work/now")
LC_ALL=C comm -23 <(facts "$reference") <(facts "$work/now") | sed 's/^/gone: /' >"$work/gone"
LC_ALL=C comm -13 <(facts "$reference") <(facts "$work/now") | sed 's/^/new:  /' >"$work/added"
cat "$work/gone" "$work/added"

if [ -s "$work/gone" ] && [ "$old" = "$new" ]; then
    echo "check_abi: programs built against $old would break"
    if was_released "$old"; then
        fail "released already: raise DER_VERSION_MINOR (from 1.0 on DER_VERSION_MAJOR) in" \
            "include/der/version.h, which changes the soname, then DER_UPDATE=1 tools/check_abi.sh"
    fi
    [ "$update" = 1 ] && renew
    fail "no release has carried $old yet, so this may be: DER_UPDATE=1 tools/check_abi.sh"
fi
if [ -s "$work/gone" ] || [ -s "$work/added" ] || [ "$old" != "$new" ]; then
    [ "$update" = 1 ] && renew
    if [ "$old" = "$new" ]; then
        fail "additions alone, no program breaks; renew: DER_UPDATE=1 tools/check_abi.sh"
    fi
    fail "the soname has changed from $old to $new; renew: DER_UPDATE=1 tools/check_abi.sh"
fi
echo "check_abi: $new offers what it did, $(facts "$reference" | wc -l) facts"
