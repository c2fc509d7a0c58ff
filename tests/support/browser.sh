# Sourced after test-lib.sh: a page in headless Chromium. Where there is no browser, the script ends here.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # root is test-lib.sh's

if ! command -v python3 >/dev/null; then
    skip "the page in a browser" "no python3"
    done_testing
fi
if ! python3 "$root/tests/support/chromium.py"; then
    skip "the page in a browser" "no chromium"
    done_testing
fi

check_page() { # WHAT PAGE KIND RUN...
    local what=$1 verdict text
    shift
    python3 "$root/tests/report/check_page.py" "$@" >checks 2>check.err || echo "fail ends well: $(tail -n 1 check.err)" >>checks
    while read -r verdict text; do
        case $verdict in
        pass) report 0 "$what: $text" ;;
        fail)
            echo "$text" >why
            report 1 "$what: ${text%%: *}" why
            ;;
        *) echo "# $what: $text" ;;
        esac
    done <checks
}
