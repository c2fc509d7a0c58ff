#!/bin/bash
# check_symbols.sh [LIBRARY [HEADER-FOLDER]]: does the library export what the public headers
# declare and nothing else, and does it leave printing and exiting to the program?
#
# Wants a release build: assertions, which end the program, are compiled out there.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
library=${1:-$root/build/libder.so}
headers=${2:-$root/include/der}
n_bad=0
complain() {
    echo "$1"
    n_bad=$((n_bad + 1))
}

if [ ! -f "$library" ] || [ ! -d "$headers" ]; then
    echo "check_symbols: $library or $headers is missing" >&2
    exit 1
fi

exported=$(nm -D --defined-only "$library" | awk '$2 ~ /[A-Z]/ { print $3 }' | sed 's/@.*//' | sort -u)
# Every DER_API declaration up to its ";": the name is the first der_... followed by "(".
declared=$(find "$headers" -name '*.h' -exec cat {} + |
    sed -e 's,/\*.*\*/,,' -e '/^#/d' | tr '\n' ' ' | tr ';' '\n' |
    grep -oE 'DER_API .*' | grep -oE 'der_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u)

if [ -z "$exported" ]; then
    complain "no exported symbol"
fi
for symbol in $exported; do
    if [[ $symbol != der_* ]]; then
        complain "exported, but not a der_ name: $symbol"
    elif ! grep -qx "$symbol" <<<"$declared"; then
        complain "exported, but not declared in a public header: $symbol"
    fi
done
for symbol in $declared; do
    grep -qx "$symbol" <<<"$exported" || complain "declared, but not exported: $symbol"
done

forbidden='^(exit|_exit|_Exit|abort|__assert_fail|printf|__printf_chk|fprintf|__fprintf_chk|vprintf|vfprintf|puts|fputs|putchar|perror|rand|srand|random)(@|$)'
while read -r symbol; do
    complain "used, but forbidden in the library: $symbol"
done < <(nm -D --undefined-only "$library" | awk '{ print $NF }' | grep -E "$forbidden")

if [ "$n_bad" -gt 0 ]; then
    echo "check_symbols: $n_bad violations"
    exit 1
fi
echo "check_symbols: $(wc -l <<<"$exported") exported symbols are fine"
