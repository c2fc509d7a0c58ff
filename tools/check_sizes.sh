#!/bin/bash
# Are all files of the repository small enough to read and to keep?
#
# At most 800 lines for text that people write, at most 1 MiB for anything, and binary files
# only as test data and as pictures of the documentation. Reads DER_CHECK_ROOT (default: this repository).
set -uo pipefail
cd "${DER_CHECK_ROOT:-$(dirname "$0")/..}" || exit 1
max_lines=800
max_bytes=1048576
n_bad=0
n_files=0
complain() {
    echo "$1: $2"
    n_bad=$((n_bad + 1))
}

# What git knows or would add; without git, all there is but the build folder.
list_files() {
    if [ -e .git ]; then
        git ls-files --cached --others --exclude-standard
    else
        find . -path ./build -prune -o -type f -print | sed 's,^\./,,'
    fi
}

while IFS= read -r file; do
    [ -f "$file" ] || continue
    n_files=$((n_files + 1))
    bytes=$(stat -c %s "$file")
    if [ "$bytes" -gt "$max_bytes" ]; then
        complain "$file" "$bytes bytes, at most $max_bytes"
    fi
    if [ "$bytes" -gt 0 ] && ! grep -qI '' "$file"; then
        [[ $file == tests/* || $file == docs/*.png ]] || complain "$file" "binary file outside tests/"
        continue
    fi
    case $file in
    *.c | *.h | *.cu | *.js | *.css | *.html | *.sh | *.awk | *.py | *.cmake | *.md | *CMakeLists.txt | Makefile | .ci/run)
        lines=$(wc -l <"$file")
        if [ "$lines" -gt "$max_lines" ]; then
            complain "$file" "$lines lines, at most $max_lines"
        fi
        ;;
    esac
done < <(list_files)

if [ "$n_files" -eq 0 ]; then
    echo "check_sizes: nothing to check in $PWD" >&2
    exit 1
fi
if [ "$n_bad" -gt 0 ]; then
    echo "check_sizes: $n_bad violations"
    exit 1
fi
echo "check_sizes: $n_files files are fine"
