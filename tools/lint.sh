#!/bin/bash
# clang-tidy over the library and the program, shellcheck over the scripts. Slow, and partly a
# matter of judgement, hence not part of `make test`. Takes no arguments.
set -euo pipefail
if [ $# -gt 0 ]; then
    sed -n '2,3p' "$0" >&2
    exit 2
fi
cd "$(dirname "$0")/.."

cmake --preset dev >/dev/null
mapfile -t files < <(find src cli -name '*.c' ! -name '*_test.c' | sort)
clang-tidy --quiet -p build/dev "${files[@]}"
if command -v shellcheck >/dev/null; then
    shellcheck -x -P SCRIPTDIR --severity=warning .ci/run tools/*.sh tests/*/*.sh
fi
