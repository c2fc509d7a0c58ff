#!/bin/bash
# The program without any work: help, version, mistakes on the command line.
. "$(dirname "$0")/../support/test-lib.sh"

expect_code 0 "der help succeeds" "$DER" help
cp out help.txt
check "help text is the expected one" diff -u "$test_dir/help.expect" help.txt
expect_code 0 "der --help succeeds" "$DER" --help
check "--help prints the same text" cmp out help.txt
expect_code 0 "der help version succeeds" "$DER" help version
check "help of a command shows its usage" grep -qx 'usage: der version' out

expect_code 0 "der --version succeeds" "$DER" --version
cp out version.txt
check "the first line is name and version" grep -Eqx 'der [0-9]+\.[0-9]+\.[0-9]+' version.txt
for part in build 'back ends' formats oneDNN OpenMP CUDA downloads; do
    check "version tells about $part" grep -q "^  $part " version.txt
done

cache_is() { # FOLDER NAME ASSIGNMENT...: what the program takes for its cache, with these and no other variables
    local folder=$1 name=$2
    shift 2
    check "$name" test "$(env -u DER_CACHE_DIR -u XDG_CACHE_HOME -u HOME "$@" "$DER" --version |
        sed -n 's/^  cache  *//p')" = "$folder"
}
cache_is /a/b "the cache is where DER_CACHE_DIR says" DER_CACHE_DIR=/a/b XDG_CACHE_HOME=/c HOME=/d
cache_is none "an empty DER_CACHE_DIR turns it off" DER_CACHE_DIR= XDG_CACHE_HOME=/c HOME=/d
cache_is /c/der "else it is in XDG_CACHE_HOME" XDG_CACHE_HOME=/c HOME=/d
cache_is /d/.cache/der "a relative XDG_CACHE_HOME does not count" XDG_CACHE_HOME=c HOME=/d
cache_is /d/.cache/der "else it is in .cache" HOME=/d
cache_is /d/.cache/der "as with an empty XDG_CACHE_HOME" XDG_CACHE_HOME= HOME=/d
cache_is none "without a home there is none" NOTHING=

expect_code 0 "der nets succeeds" "$DER" nets
check "and knows the paper's network" grep -Eq '^resnet18-cifar +11168832 +512 ' out
check "and the 32-layer one" grep -Eq '^resnet32 +466256 +64 ' out
expect_code 2 "argument to nets is a usage error" "$DER" nets all

expect_code 2 "no command is a usage error" "$DER"
check "and says so in one line on stderr" one_line err "no command"
expect_code 2 "unknown command is a usage error" "$DER" frobnicate
check "and says so in one line on stderr" one_line err frobnicate
expect_code 2 "mistyped command is a usage error" "$DER" hlep
check "and the right one is suggested" one_line err "did you mean 'help'"
expect_code 2 "unknown option is a usage error" "$DER" --frobnicate
check "and says so in one line on stderr" one_line err "--frobnicate"
expect_code 2 "argument to version is a usage error" "$DER" version now
expect_code 2 "help for an unknown command is a usage error" "$DER" help frobnicate
expect_code 2 "second argument to help is a usage error" "$DER" help version now
expect_code 2 "a very long word is just unknown" "$DER" "$(printf 'x%.0s' {1..500})"

if [ -w /dev/full ]; then
    expect_code 1 "output that cannot be written is a failure" sh -c '"$0" help >/dev/full' "$DER"
else
    skip "output that cannot be written is a failure" "no /dev/full"
fi

# What the program can do, any program can do with the library: it uses nothing underneath.
needed=$(readelf -d "$DER" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
check "the program uses libder.so" grep -q '^libder\.so' <<<"$needed"
check_not "and none of the libraries below it" grep -qE 'dnnl|gomp|cuda|cudnn|curl|archive|nettle' <<<"$needed"

done_testing
