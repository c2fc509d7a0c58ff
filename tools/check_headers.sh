#!/bin/bash
# Does every header compile alone, and the public ones as C++ too?
#
# Reads DER_CHECK_ROOT (default: this repository). Headers of the cuda room and its tests, which need
# not be compilable here, are left to its build.
set -uo pipefail
cd "${DER_CHECK_ROOT:-$(dirname "$0")/..}" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_bad=0
n_files=0

compiles() { # COMPILER FLAGS... HEADER
    local header=${*: -1}
    "${@:1:$#-1}" -Wall -Wextra -Werror -fsyntax-only -Iinclude -Isrc -Itests \
        -include "$header" "$work/empty.c" && return
    echo "$header does not compile alone with $1"
    n_bad=$((n_bad + 1))
}

echo 'extern int der_nothing_else;' >"$work/empty.c"
while IFS= read -r header; do
    n_files=$((n_files + 1))
    compiles cc -std=c11 -D_POSIX_C_SOURCE=200809L "$PWD/$header"
    if [[ $header == include/* ]]; then
        compiles c++ -std=c++11 -x c++ "$PWD/$header"
    fi
done < <(find include src tests -name '*.h' ! -path 'src/backend/cuda/*' \
    ! -path 'tests/support/cuda/*' 2>/dev/null | sort)

if [ "$n_files" -eq 0 ]; then
    echo "check_headers: nothing to check in $PWD" >&2
    exit 1
fi
if [ "$n_bad" -gt 0 ]; then
    echo "check_headers: $n_bad violations"
    exit 1
fi
echo "check_headers: $n_files headers are fine"
