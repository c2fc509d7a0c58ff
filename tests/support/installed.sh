# Sourced after test-lib.sh: installs the build under test into $prefix, for tests that see it as other
# projects do.
#
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # for and from the scripts
build=$(dirname "$LIBDER")
prefix=$trash/prefix
strict=(-Wall -Wextra -Wpedantic -Werror)
expect_code 0 "the build is installed" cmake --install "$build" --prefix "$prefix"

# A library with the address sanitizer wants programs that have it too.
sanitizer=
if readelf -d "$LIBDER" | grep -q 'NEEDED.*libasan'; then
    sanitizer=-fsanitize=address,undefined
fi

use_prefix() { # PREFIX: the installed copy that pkg-config finds
    export PKG_CONFIG_PATH=$1/lib/pkgconfig
}

build_outside() { # COMPILER FLAGS... SOURCE PROGRAM: by pkg-config
    local source=${*: -2:1} program=${*: -1} libdir
    libdir=$(pkg-config --variable=libdir der)
    # shellcheck disable=SC2046 # flags are words
    "${@:1:$#-2}" ${sanitizer:+"$sanitizer"} "${strict[@]}" "$source" -o "$program" \
        $(pkg-config --cflags --libs der) "-Wl,-rpath,$libdir"
}

libder_of() { # PROGRAM: the libder that the loader gives it
    ldd "$1" | sed -n 's/.*libder\.so[^ ]* => \([^ ]*\) .*/\1/p' | xargs realpath
}
