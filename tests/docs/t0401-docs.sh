#!/bin/bash
# Every command of the documents, run as a reader would; see run_docs.py.
# labels: first
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
exec python3 tests/docs/run_docs.py --list docs/TESTING.md README.md CONTRIBUTING.md docs/*.md man/der.1
