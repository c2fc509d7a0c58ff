#!/bin/bash
# screenshots.sh DIR RUN...: the page of some runs as pictures, made by headless Chromium: DIR/light.png, dark.png,
# print.png (as it looks on paper, in one piece), print.pdf, and top.png, its beginning (HEIGHT=620 lines of it), what
# docs/report.png and docs/figure1.png are.
#
#   tools/screenshots.sh build/shots build/demo/*        after `make demo`
set -euo pipefail
[ $# -ge 2 ] || {
    echo "usage: tools/screenshots.sh DIR RUN..." >&2
    exit 2
}
root=$(cd "$(dirname "$0")/.." && pwd)
dir=$1
shift
mkdir -p "$dir"
"${DER:-$root/build/der}" report "$@" -o "$dir/page.html" --title "${TITLE:-Ten classes in five steps}" --quiet
python3 - "$root/tests/support" "$dir" "${HEIGHT:-620}" <<'END'
import os
import sys

sys.path.insert(0, sys.argv[1])
import chromium

if not chromium.find():
    sys.exit("screenshots: chromium is not installed")
folder = os.path.abspath(sys.argv[2])
with chromium.Browser() as browser:
    for name, media, dark in (("light", "screen", False), ("dark", "screen", True), ("print", "print", False)):
        page = browser.open(f"file://{folder}/page.html", dark=dark)
        page.media(media, dark)
        page.screenshot(f"{folder}/{name}.png")
        if name == "print":
            page.pdf(f"{folder}/print.pdf")
        page.close()
    page = browser.open(f"file://{folder}/page.html", width=1120)
    page.screenshot(f"{folder}/top.png", 0, int(sys.argv[3]))
print(f"{folder}: light.png dark.png print.png print.pdf top.png")
END
