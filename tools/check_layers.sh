#!/bin/bash
# Do includes point downwards, and do heap, vendors and output stay where they belong?
#
# Reads the tree in DER_CHECK_ROOT (default: this repository), prints one line per violation.
set -uo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
cd "${DER_CHECK_ROOT:-$tools/..}" || exit 1

# Room -> rooms it may include, besides itself and <der/...>.
declare -A allowed=(
    [core]=""
    [json]="core"
    [graph]="core"
    [backend/ref]="graph core"
    [backend/cpu]="graph core"
    [backend/cuda]="io graph core"
    [dist]="graph core"
    [data]="core"
    [metrics]="core"
    [io]="json graph core"
    [fetch]="io core"
    [config]="train data graph core json"
    [nn]="graph core"
    [model]="nn graph core"
    [train]="model nn graph core data metrics"
    [store]="io json model nn graph core data metrics"
    [predict]="store train model nn graph core data metrics io json"
    [method]="store config train model nn graph core data metrics io"
    [experiment]="method store config train model nn graph core data metrics io json"
    [learn]="method store config train model nn graph core data metrics io json"
    [report]="experiment method store config train model nn graph core data metrics io json"
    [exchange]="experiment method store config train model nn graph core data metrics io json"
    [api]="exchange experiment fetch learn method predict store config json train model nn graph core data metrics io report dist backend/ref backend/cpu backend/cuda"
)

# Vendor headers -> the rooms that may see them.
declare -A vendor=(
    ['dnnl|oneapi/']="backend/cpu"
    ['omp\.h']="backend/cpu"
    ['cuda|cublas|cudnn|nccl']="backend/cuda dist"
    ['cjson']="json config io store predict experiment exchange report api"
    ['zlib\.h|jpeglib\.h|png\.h']="data"
    ['mpi\.h']="dist"
    ['curl/|archive\.h|archive_entry\.h|nettle/']="fetch"
)

n_bad=0
complain() { # FILE:LINE TEXT
    echo "$1: $2"
    n_bad=$((n_bad + 1))
}

has_word() { # LIST WORD
    [[ " $1 " == *" $2 "* ]]
}

room_of() { # path below src/ -> room, "backend/cpu" for the back ends
    case $1 in
    backend/*/*) echo "$1" | cut -d/ -f1-2 ;;
    */*) echo "${1%%/*}" ;;
    *) echo "" ;;
    esac
}

check_include() { # FILE LINE TARGET QUOTED(1)|SYSTEM(0)
    local file=$1 where=$1:$2 target=$3 quoted=$4
    local room="" pattern
    case $file in
    cli/*)
        if [ "$quoted" = 1 ] && [ ! -f "cli/$target" ]; then
            complain "$where" "cli includes \"$target\"; it may see <der/...> and its own headers"
        fi
        ;;
    examples/*)
        if [ "$quoted" = 1 ]; then
            complain "$where" "an example includes \"$target\"; it has the installed <der/...> alone"
        fi
        ;;
    include/der/*)
        if [ "$quoted" = 1 ]; then
            complain "$where" "a public header includes \"$target\"; write <der/...>"
        fi
        ;;
    src/*)
        room=$(room_of "${file#src/}")
        if [ -z "$room" ] || [ -z "${allowed[$room]+known}" ]; then
            complain "$where" "'$room' is no room that this check knows"
            return
        fi
        [ "$quoted" = 1 ] && check_room "$file" "$where" "$room" "$target"
        ;;
    esac
    for pattern in "${!vendor[@]}"; do
        if [[ $target =~ ^($pattern) ]] && ! has_word "${vendor[$pattern]}" "$room"; then
            complain "$where" "vendor header '$target' belongs to ${vendor[$pattern]}"
        fi
    done
}

check_room() { # FILE WHERE ROOM TARGET
    local target_room
    target_room=$(room_of "$4")
    case $4 in
    der_build.h)
        [[ $3 == api || $3 == data || $1 == src/graph/registry.c || $1 == *_test.c ]] ||
            complain "$2" "der_build.h is for api, data and graph/registry.c"
        return
        ;;
    support/*)
        [[ $1 == *_test.c ]] || complain "$2" "'$4' is test code"
        return
        ;;
    esac
    if [ "$target_room" = "$3" ] || has_word "${allowed[$3]}" "$target_room"; then
        return
    fi
    if [ "$1" = src/graph/registry.c ] && [[ $target_room == backend/* ]]; then
        return
    fi
    complain "$2" "$3 may not include \"$4\" (allowed: own room ${allowed[$3]})"
}

mapfile -t all < <(find src cli examples include -name '*.[ch]' -o -name '*.cu' 2>/dev/null | sort)
mapfile -t library < <(find src -name '*.[ch]' ! -name '*_test.c' 2>/dev/null | sort)
if [ ${#all[@]} -eq 0 ] || [ ${#library[@]} -eq 0 ]; then
    echo "check_layers: nothing to check in $PWD" >&2
    exit 1
fi

while IFS=: read -r file line code; do
    if [[ $code =~ ^[[:space:]]*\#[[:space:]]*include[[:space:]]*([\"\<])([^\"\>]+)[\"\>] ]]; then
        quoted=0
        [ "${BASH_REMATCH[1]}" = '"' ] && quoted=1
        check_include "$file" "$line" "${BASH_REMATCH[2]}" "$quoted"
    fi
done < <(awk -f "$tools/strip_c.awk" "${all[@]}" | grep -E ':[0-9]+:[[:space:]]*#[[:space:]]*include')

# forbid REGEX EXEMPT-FILE-REGEX TEXT, over the library without its tests.
forbid() {
    local hit
    while IFS= read -r hit; do
        [ -n "$hit" ] && complain "$(echo "$hit" | cut -d: -f1-2)" "$3"
    done < <(echo "$code" | grep -E "$1" | grep -vE "^($2):")
}

call='(^|[^A-Za-z0-9_.>])'
code=$(awk -f "$tools/strip_c.awk" "${library[@]}")
forbid "$call(malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup)[[:space:]]*\\(" \
    'src/core/mem\.c' 'the heap is reached through core/mem alone'
forbid "$call(printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror)[[:space:]]*\\(" \
    'none' 'the library does not print; use ctx_log or ctx_fail'
forbid "$call(exit|_exit|_Exit|abort|quick_exit)[[:space:]]*\\(" 'none' 'the library does not end the program'
forbid "$call(rand|srand|random|drand48|strcpy|sprintf|vsprintf|strtok|gets|alloca)[[:space:]]*\\(" \
    'none' 'forbidden function (style guide)'
forbid "$call(strtod|strtof|strtold|atof)[[:space:]]*\\(" 'src/core/decimal\.c' \
    'strtod follows the locale of the program; use core/decimal'
code=$(awk -v strings=1 -f "$tools/strip_c.awk" "${library[@]}")
forbid '"(ref|cpu|cuda)"' 'src/api/[^:]*|src/graph/registry\.c|src/backend/[^:]*' \
    'only api and graph/registry.c name back ends'

if [ "$n_bad" -gt 0 ]; then
    echo "check_layers: $n_bad violations in ${#all[@]} files"
    exit 1
fi
echo "check_layers: ${#all[@]} files are fine"
