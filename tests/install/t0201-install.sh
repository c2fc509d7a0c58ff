#!/bin/bash
# What `cmake --install` leaves, and that other projects can use it, also after it was moved.
# labels: first
. "$(dirname "$0")/../support/test-lib.sh"
. "$root/tests/support/installed.sh"
. "$root/tests/support/runs.sh"

version=$(sed -n 's/^#define DER_VERSION_[A-Z]* //p' "$root/include/der/version.h" | paste -sd .)
soversion=${version%%.*}
if [ "$soversion" = 0 ]; then
    soversion=${version%.*}
fi

# Files: these and no others.
{
    echo bin/der
    (cd "$root" && find include/der -name '*.h')
    printf '%s\n' lib/libder.so "lib/libder.so.$soversion" "lib/libder.so.$version" \
        lib/pkgconfig/der.pc lib/cmake/der/derConfig.cmake lib/cmake/der/derConfigVersion.cmake \
        share/bash-completion/completions/der share/zsh/site-functions/_der
    (cd "$root/man" && printf 'share/man/man1/%s\n' *.1)
    (cd "$prefix" && ls lib/cmake/der/derConfig-*.cmake)
} | sort >expected
(cd "$prefix" && find . ! -type d | sed 's,^\./,,') | sort >installed
check "the tree is what it should be" diff -u expected installed
check "the soname is versioned" \
    grep -q "SONAME.*\[libder\.so\.$soversion\]" <(readelf -d "$prefix/lib/libder.so")
check_fails "nothing installed points back to the build or the sources" \
    grep -rlF -e "$root/" "$prefix/lib/pkgconfig" "$prefix/lib/cmake" "$prefix/include"
check_fails "nor does a search path of the loader" \
    grep -F "$root" <(readelf -d "$prefix/bin/der" "$prefix/lib/libder.so" | grep -E 'RPATH|RUNPATH')
expect_code 0 "the installed program starts" env -u LD_LIBRARY_PATH "$prefix/bin/der" --version
check "and is this version" grep -qx "der $version" out
check "with the library beside it" test "$(libder_of "$prefix/bin/der")" -ef "$prefix/lib/libder.so"

# Headers: every one alone, as C11 and as C++17.
echo 'extern int nothing_else;' >empty.c
for header in "$prefix"/include/der/*.h; do
    name=der/$(basename "$header")
    check "<$name> alone is C11" \
        cc -std=c11 "${strict[@]}" -fsyntax-only -I "$prefix/include" -include "$name" empty.c
    check "<$name> alone is C++17" \
        c++ -std=c++17 "${strict[@]}" -fsyntax-only -I "$prefix/include" -x c++ -include "$name" empty.c
done

# pkg-config
use_prefix "$prefix"
check "pkg-config knows the version" test "$(pkg-config --modversion der)" = "$version"
check "the link line names the library and nothing below it" \
    test "$(pkg-config --libs-only-l --static der | xargs)" = -lder
cat >hello.c <<'C'
#include <der/der.h>
#include <stdio.h>
int main(void)
{
    printf("%s %d.%d.%d\n", der_version(), DER_VERSION_MAJOR, DER_VERSION_MINOR, DER_VERSION_PATCH);
    return 0;
}
C
cp hello.c hello.cc
check "a C program is built by it" build_outside cc -std=c11 hello.c hello-c
check "and a C++ program" build_outside c++ -std=c++17 hello.cc hello-cc
for program in hello-c hello-cc; do
    check "$program runs" test "$(./"$program")" = "$version $version"
    check "with the installed library" test "$(libder_of "$program")" -ef "$prefix/lib/libder.so"
done
check "a program of two contexts in two threads is built" \
    build_outside cc -std=c11 -pthread "$test_dir/two_contexts.c" two_contexts
stack=256 # KB, as docs/EMBEDDING.md promises
if [ -n "$sanitizer" ]; then
    stack=4096
fi
expect_code 0 "and each comes to what it comes to alone" ./two_contexts "$stack"

# The locale is the program's; files and settings have points whatever it says.
check "a program that has a locale is built" \
    build_outside cc -std=c11 "$test_dir/decimal_comma.c" decimal_comma
expect_code 0 "it works with a decimal point" env LC_ALL=C ./decimal_comma run-point
if localedef -i de_DE -f UTF-8 ./de_DE.UTF-8 >locale.log 2>&1; then
    # With LOCPATH the C library itself keeps a few bytes, which the leak sanitizer would hold against us.
    echo "leak:argz_add_sep" >lsan.txt
    expect_code 0 "and with a comma" env LSAN_OPTIONS="suppressions=$PWD/lsan.txt:print_suppressions=0" \
        LOCPATH="$PWD" LC_ALL=de_DE.UTF-8 ./decimal_comma run-comma
    check "which it really has" grep -qx , out
    for file in config.json model.safetensors exemplars.safetensors state.safetensors; do
        check "$file has the same bytes" cmp "run-point/$file" "run-comma/$file"
    done
    check "the metrics are the same" \
        test "$(strip_times run-comma)" = "$(strip_times run-point)"
else
    skip "and with a comma" "there is no locale de_DE to be made (package locales)"
fi

# CMake
project() { # FOLDER VERSION: a project that wants this version
    mkdir -p "$1"
    cp hello.c "$1"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(outside LANGUAGES C)' \
        "find_package(der $2 REQUIRED)" 'add_executable(hello hello.c)' \
        'target_link_libraries(hello PRIVATE der::der)' >"$1/CMakeLists.txt"
}

configure() { # FOLDER PREFIX
    cmake -S "$1" -B "$1/build" -DCMAKE_PREFIX_PATH="$2" -DCMAKE_C_FLAGS="$sanitizer"
}

project outside "${version%.*}"
check "find_package finds it" configure outside "$prefix"
check "and a project is built" cmake --build outside/build
check "and runs" test "$(outside/build/hello)" = "$version $version"
major=${version%%.*}
minor=${version#*.}
minor=${minor%%.*}
project newer "$major.$((minor + 1))"
check_fails "a newer version is not there" configure newer "$prefix"
if [ "$major" -eq 0 ] && [ "$minor" -gt 0 ]; then
    project older "0.$((minor - 1))"
    check_fails "nor is one that may have broken since" configure older "$prefix"
fi

# Moved
mv "$prefix" "$trash/moved"
prefix=$trash/moved
use_prefix "$prefix"
expect_code 0 "a moved program starts" "$prefix/bin/der" --version
check "pkg-config builds with a moved tree" build_outside cc -std=c11 hello.c hello-moved
check "and the program runs" test "$(./hello-moved)" = "$version $version"
check "with the moved library" test "$(libder_of hello-moved)" -ef "$prefix/lib/libder.so"
project moved-outside "$version"
check "CMake finds a moved tree" configure moved-outside "$prefix"
check "and builds with it" cmake --build moved-outside/build
check "and the program runs" test "$(moved-outside/build/hello)" = "$version $version"

# As a part of another project, with the library two folders below the prefix.
mkdir whole
cp hello.c whole
printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(whole LANGUAGES C)' \
    "add_subdirectory($root der)" 'add_executable(hello hello.c)' \
    'target_link_libraries(hello PRIVATE der::der)' >whole/CMakeLists.txt
check "another project can take the sources in" cmake -S whole -B whole/build -DDER_CUDA=OFF \
    -DCMAKE_INSTALL_LIBDIR=lib/some-linux
check "without the tests" grep -qx 'Total Tests: 0' <(ctest --test-dir whole/build -N)
check "der.pc knows where the prefix is" \
    grep -qx 'prefix=${pcfiledir}/../../..' whole/build/der/generated/der.pc
check "and the library" grep -qx 'libdir=${pcfiledir}/..' whole/build/der/generated/der.pc

done_testing
