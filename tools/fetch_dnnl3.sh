#!/bin/bash
# fetch_dnnl3.sh DIR: puts oneDNN 3.2 (CPU, libgomp) into DIR/include and DIR/lib.
#
# It comes as two Python wheels, which are zip files; nothing is installed. Does nothing when
# DIR holds that version already.
set -euo pipefail
dir=${1:?usage: fetch_dnnl3.sh DIR}
version=2023.2.0
stamp=$dir/.version

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$version" ]; then
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "fetching oneDNN 3.2 (onednn-cpu-gomp and onednn-devel-cpu-gomp $version)"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$work" "onednn-cpu-gomp==$version" "onednn-devel-cpu-gomp==$version"
for wheel in "$work"/*.whl; do
    python3 -m zipfile -e "$wheel" "$work/unpacked"
done

rm -rf "$dir"
mkdir -p "$dir/lib"
for data in "$work"/unpacked/*.data/data; do
    if [ -d "$data/include" ]; then
        cp -r "$data/include" "$dir/"
    fi
    # The wheel holds three copies where a package would have links.
    if [ -f "$data/lib/libdnnl.so.3" ]; then
        cp "$data/lib/libdnnl.so.3" "$dir/lib/"
        ln -s libdnnl.so.3 "$dir/lib/libdnnl.so"
    fi
done
test -f "$dir/include/oneapi/dnnl/dnnl.h" && test -e "$dir/lib/libdnnl.so"
echo "$version" >"$stamp"
