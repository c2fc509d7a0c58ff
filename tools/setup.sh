#!/bin/bash
# setup.sh [demo]: installs what building and testing need, or what the demonstration needs, and what
# is not there yet (Debian 12 and 13, Ubuntu 24.04).
#
# Each package is probed by what it is wanted for, so a tool from elsewhere will do. With
# DER_NO_INSTALL=1 the missing packages are named and the script stops with status 1.
set -euo pipefail

includes() { # HEADER: can the compiler see it?
    echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1
}

has_cmocka() { # its header wants others before it
    printf '#include <%s>\n' stdarg.h stddef.h stdint.h setjmp.h cmocka.h |
        cc -E -x c - >/dev/null 2>&1
}

has_cmake() {
    local version
    version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
    [ -n "$version" ] && printf '3.25\n%s\n' "$version" | sort -V -C
}

has_fuzzer() { # the run-time part of clang is a package of its own
    local status=0 work
    work=$(mktemp -d)
    echo 'int LLVMFuzzerTestOneInput(const char *data, unsigned long size);
          int LLVMFuzzerTestOneInput(const char *data, unsigned long size) { return !data && size; }' |
        clang -x c - -fsanitize=fuzzer,address,undefined -o "$work/a.out" >/dev/null 2>&1 || status=1
    rm -rf "$work"
    return $status
}

has_torch() { # Debian's, for the golden files; a user's own is no substitute
    /usr/bin/python3 -c 'import numpy, torch' >/dev/null 2>&1
}

has_browser() {
    python3 "$(dirname "$0")/../tests/support/chromium.py"
}

# Package and the test that tells whether it is needed.
required=(
    "build-essential:command -v cc && command -v make && command -v nm && includes stdio.h"
    "cmake:has_cmake"
    "git:command -v git"
    "pkg-config:command -v pkg-config"
    "libdnnl-dev:includes oneapi/dnnl/dnnl.h"
    "libcjson-dev:includes cjson/cJSON.h"
    "libcmocka-dev:has_cmocka"
    "zlib1g-dev:includes zlib.h"
    "libjpeg-dev:printf '#include <stdio.h>\\n#include <jpeglib.h>\\n' | cc -E -x c -"
    "libpng-dev:includes png.h"
    "libcurl4-gnutls-dev:includes curl/curl.h"
    "libarchive-dev:includes archive.h"
    "nettle-dev:includes nettle/sha2.h"
    "clang:command -v clang"
    "libclang-rt-dev:has_fuzzer"
    "python3:command -v python3"
    "python3-pip:python3 -m pip --version"
    "python3-venv:python3 -c 'import ensurepip, venv'"
)
if [ "${1:-}" = demo ]; then
    required=("${required[@]:0:1}" "cmake:has_cmake" "libdnnl-dev:includes oneapi/dnnl/dnnl.h"
        "libcjson-dev:includes cjson/cJSON.h" "zlib1g-dev:includes zlib.h")
fi
# Without these something is skipped, and the one who skips it says so.
optional=(
    "clang-format-14:command -v clang-format-14"
    "python3-numpy:/usr/bin/python3 -c 'import numpy'"
    "python3-torch:has_torch"
    "python3-pil:/usr/bin/python3 -c 'import PIL'"
    "chromium:has_browser"
    "zsh:command -v zsh"
    "mandoc:command -v mandoc"
    "man-db:command -v man && command -v groff"
    "locales:command -v localedef && test -f /usr/share/i18n/locales/de_DE"
)
if [ "${1:-}" = demo ]; then
    optional=("dataset-fashion-mnist:test -d /usr/share/datasets/fashion-mnist" "libpng-dev:includes png.h")
fi

missing=()
missing_optional=()
for row in "${required[@]}"; do
    eval "${row#*:}" >/dev/null 2>&1 || missing+=("${row%%:*}")
done
for row in "${optional[@]}"; do
    eval "${row#*:}" >/dev/null 2>&1 || missing_optional+=("${row%%:*}")
done
if [ ${#missing[@]} -eq 0 ] && [ ${#missing_optional[@]} -eq 0 ]; then
    exit 0
fi

if [ "${DER_NO_INSTALL:-0}" = 1 ]; then
    if [ ${#missing_optional[@]} -gt 0 ]; then
        echo "setup: missing, but not required: ${missing_optional[*]}"
    fi
    if [ ${#missing[@]} -gt 0 ]; then
        echo "setup: missing packages: ${missing[*]}" >&2
        echo "setup: DER_NO_INSTALL=1 is set, so nothing is installed" >&2
        exit 1
    fi
    exit 0
fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    sudo=(sudo)
fi
if ! command -v apt-get >/dev/null || { [ ${#sudo[@]} -gt 0 ] && ! command -v sudo >/dev/null; }; then
    echo "setup: cannot install here (needs apt-get, and root or sudo)" >&2
    echo "setup: missing packages: ${missing[*]} ${missing_optional[*]}" >&2
    [ ${#missing[@]} -eq 0 ]
    exit
fi

export DEBIAN_FRONTEND=noninteractive
# Package lists may be absent or old. Without a network the install below tells what is wrong.
"${sudo[@]}" apt-get update -qq || echo "setup: apt-get update failed; trying with what is there"

exists() { # and is more than a name that another package goes by
    [ -n "$(apt-cache show "$1" 2>/dev/null)" ]
}
wanted=()
for package in "${missing[@]}"; do
    if [ "$package" = libclang-rt-dev ] && ! exists "$package"; then
        major=$(apt-cache depends clang | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
        package=libclang-rt-$major-dev
    fi
    wanted+=("$package")
done
if [ ${#wanted[@]} -gt 0 ]; then
    echo "setup: installing ${wanted[*]}"
    "${sudo[@]}" apt-get install -qq -y --no-install-recommends "${wanted[@]}" >/dev/null
fi
for package in "${missing_optional[@]}"; do
    if ! exists "$package"; then
        echo "setup: $package is not offered by this system; what needs it will be left out"
    else
        echo "setup: installing $package"
        "${sudo[@]}" apt-get install -qq -y --no-install-recommends "$package" >/dev/null ||
            echo "setup: $package could not be installed; what needs it will be left out"
    fi
done
