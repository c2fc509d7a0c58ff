#!/bin/bash
# check_format.sh [--fix]: is the code formatted as .clang-format says?
#
# Version 14 alone is asked, since others break lines differently.
set -euo pipefail
cd "${DER_CHECK_ROOT:-$(dirname "$0")/..}"

tool=
for candidate in clang-format-14 clang-format; do
    if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q 'version 14\.'; then
        tool=$candidate
        break
    fi
done
if [ -z "$tool" ]; then
    echo "check_format: clang-format 14 is not installed (package clang-format-14)" >&2
    exit 1
fi

mapfile -t files < <(find include src cli tests bench examples -name '*.[ch]' 2>/dev/null | sort)
if [ ${#files[@]} -eq 0 ]; then
    echo "check_format: no files found in $PWD" >&2
    exit 1
fi
if [ "${1:-}" = --fix ]; then
    "$tool" -i "${files[@]}"
else
    "$tool" --dry-run -Werror "${files[@]}"
fi
