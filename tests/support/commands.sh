# Sourced by tests of the program: what commands it has, as it tells itself.
#
# shellcheck shell=bash

words() { # WORD...: what may come at the end of this command line, a line each
    "$DER" completion words -- der "$@" | sed '1d; s/\t.*//'
}

all_commands() { # every command, and every part of one ("data get"), a line each
    local command part
    for command in $(words ''); do
        echo "$command"
        if "$DER" help "$command" | grep -q "^'der help $command .*' describes one of them"; then
            for part in $(words "$command" ''); do
                echo "$command $part"
            done
        fi
    done
}
