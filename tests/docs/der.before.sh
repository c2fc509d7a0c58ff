# Pictures for the examples of the man page.
# shellcheck shell=bash
python3 tests/support/make_photos.py photos 0 10 apple book && cp photos/apple/003.jpg picture.jpg
