#!/bin/bash
# The manual: its pages are those that the program writes, complete, and good roff.
. "$(dirname "$0")/../support/test-lib.sh"
. "$root/tests/support/commands.sh"

mkdir pages
expect_code 0 "the pages are written" "$DER" help --manual pages
check "man/ holds just them; 'der help --manual man' renews it" diff -r "$root/man" pages
expect_code 3 "a folder that is not there is told" "$DER" help --manual nowhere
check "by name" one_line err nowhere/der.1
if [ -w /dev/full ]; then
    mkdir full
    ln -s /dev/full full/der.1
    expect_code 3 "a full disk is told" "$DER" help --manual full
    check "by the page" one_line err full/der.1
else
    skip "a full disk is told" "no /dev/full"
fi

escaped() { # WORD: as roff writes what is typed
    printf '%s' "${1//-/\\-}"
}

while read -r command; do
    page=pages/der-${command// /-}.1
    check "der $command has a page" test -s "$page"
    # shellcheck disable=SC2086 # two words
    "$DER" help $command >help.txt
    check "which its help names" grep -qx "'man der-${command// /-}' says more\." help.txt
    for flag in $(sed -n 's/^  \(-[a-z], \)\{0,1\}--\([a-z-]*\).*/\2/p' help.txt); do
        check "and which has --$flag" grep -qF -- "\\fB$(escaped "--$flag")\\fR" "$page"
    done
    check "and the exit status" grep -q '^\.SH EXIT STATUS' "$page"
    if ! grep -q 'describes one of them' help.txt; then
        check "der(1) refers to it" grep -qxF ".BR der\\-$(escaped "${command// /-}") (1)" pages/der.1
    fi
done < <(all_commands)
for option in --help --version; do
    check "der(1) has $option" grep -qF -- "\\fB$(escaped "$option")\\fR" pages/der.1
done
for code in 0 1 2 3 4; do
    check "der(1) has exit status $code" grep -qxF "\\fB$code\\fR" pages/der.1
done
for variable in NO_COLOR TERM https_proxy; do
    check "der(1) has $variable" grep -q "\\\\fB$variable" pages/der.1
done
for preset in $("$DER" presets | awk '{ print $1 }'); do
    check "der-presets(1) has $preset" grep -qxF "\\fB$(escaped "$preset")\\fR" pages/der-presets.1
done
for key in $("$DER" presets custom | awk '{ print $1 }'); do
    check "der-presets(1) has $key" grep -qxF "\\fB$key\\fR" pages/der-presets.1
done
check "and what one takes" grep -q '^It takes one of der, finetune, joint, icarl, wa, bic\.' pages/der-presets.1

for page in pages/*.1; do
    name=$(basename "$page")
    if command -v man >/dev/null && command -v groff >/dev/null; then
        LC_ALL=C man --warnings -l -Tascii "$page" >shown 2>warnings
        check "groff has nothing to say about $name" test ! -s warnings -a -s shown
        check "and shows its name" grep -q "${name%.1} - " shown
    else
        skip "groff has nothing to say about $name" "no man or groff"
    fi
    if command -v mandoc >/dev/null; then
        # Pages have no date: they belong to a version, which they name.
        mandoc -T lint -W style "$page" | grep -v 'missing date' >warnings
        check "nor has mandoc" test ! -s warnings
    else
        skip "nor has mandoc" "no mandoc"
    fi
done

done_testing
