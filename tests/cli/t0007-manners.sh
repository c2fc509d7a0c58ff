#!/bin/bash
# Manners of the program: the same help both ways, suggestions, --quiet, colour, exit codes.
. "$(dirname "$0")/../support/test-lib.sh"
. "$root/tests/support/commands.sh"

synth=synth:classes=2,train=8,test=4,size=8,seed=1
tiny=(--data "$synth" --device ref --set epochs=1 --set classifier_epochs=1 --set batch=8 --set width=0.1)

# ---- help --------------------------------------------------------------------------------------------

check "the table has commands and parts" test "$(all_commands | wc -l)" -ge 16
while read -r -a command; do
    name="der ${command[*]}"
    expect_code 0 "$name --help succeeds" "$DER" "${command[@]}" --help
    cp out flag.txt
    check "and begins with its usage" grep -q "^usage: $name" flag.txt
    expect_code 0 "der help ${command[*]} succeeds" "$DER" help "${command[@]}"
    check "and prints the same" cmp out flag.txt
    expect_code 0 "$name -h too" "$DER" "${command[@]}" -h
    check "as well" cmp out flag.txt
done < <(all_commands)
expect_code 0 "help may be asked for behind other options" "$DER" train --data nowhere --threads 1 --help
check "and nothing is done then" grep -q '^usage: der train' out
expect_code 0 "the settings are described" "$DER" help settings
cp out settings.txt
for key in $("$DER" presets custom | awk '{ print $1 }'); do
    check "help settings knows $key" grep -Eq "^[* ] $key +[^ ]" settings.txt
done
check "and says what one takes" grep -qx ' *takes one of der, finetune, joint, icarl, wa, bic' settings.txt
check "and what the protocol fixes" grep -q '^\* memory_mode ' settings.txt

# ---- what was mistyped -------------------------------------------------------------------------------

suggests() { # WORD ARGUMENTS...: a usage error that suggests the word
    local word=$1
    shift
    expect_code 2 "der $* is refused" "$DER" "$@"
    check "and '$word' suggested, in one line" one_line err "did you mean '$word'?"
}
suggests train trian
suggests help hlep
suggests --version --versoin
suggests --help --hepl
suggests check data chekc
suggests get help data gte
suggests train help tran
suggests --preset train --perset custom
suggests --json presets -json
suggests --help nets --hlep
suggests cifar100-b0-10 presets cifar100-b0-11
suggests fashion-mnist-5 train --data "$synth" --preset fashion-mnist5
suggests lambda_s presets custom --set lamda_s=1
suggests lambda_s train --data "$synth" --set lamda_s=1
suggests joint train --data "$synth" --method jiont
suggests last train --data "$synth" --joint-steps lsat
suggests per-class presets custom --set memory_mode=perclass
suggests f32 train --data "$synth" --precision f23
suggests skip eval model --data "$synth" --bad-images skp
suggests test eval model --data "$synth" --split tset
suggests latency train --data "$synth" --measure latncy
suggests T1 reproduce T1a --out tables
suggests der-wop reproduce T4 --row der-wopp --out tables
suggests cifar100 data get cifar-100 here
suggests bash completion bsh
expect_code 2 "a choice like no other is refused" "$DER" train --data "$synth" --precision double
check "and the choices are listed" one_line err "takes\? 'double', but f32, tf32 or bf16\$"
expect_code 2 "an option like no other is refused" "$DER" nets --frobnicate
check "and where to look is told" one_line err "unknown option '--frobnicate'; see 'der help nets'"
expect_code 2 "a name of a word is no option" "$DER" eval --MODEL x
check_not "and is not suggested" grep -q 'did you mean' err
expect_code 2 "numbers have a least value" "$DER" train --data "$synth" --threads 0
check "which is told" one_line err "--threads wants 1 or more, not 0"
expect_code 2 "also where it is 0" "$DER" train --data "$synth" --seed=-1
check "which is told" one_line err "--seed wants 0 or more, not -1"
expect_code 2 "a flag takes no value" "$DER" train --quiet=yes
expect_code 2 "and others want one" "$DER" train --precision
check "which is described" one_line err "--precision wants a value: f32|tf32|bf16"

# ---- exit codes: each that help lists is reached ------------------------------------------------------

reach() { # CODE ARGUMENTS...
    local code=$1
    shift
    expect_code "$code" "exit status $code: $(sed -n "s/^  $code  //p" help.txt)" "$@"
}
"$DER" help >help.txt
reach 0 "$DER" version
reach 1 "$DER" train "${tiny[@]}" --quiet --set lr=100 --set decay=1 --set epochs=20
check "in one line that says why" one_line err 'loss'
reach 2 "$DER" train
reach 3 "$DER" train --data nowhere
reach 4 "$DER" train --data "$synth" --device abacus
check "help lists these and no others" test "$(sed -n 's/^  \([0-9]\)  .*/\1/p' help.txt | xargs)" = "0 1 2 3 4"

# ---- quiet -------------------------------------------------------------------------------------------

on_terminal() { # COMMAND...: writes what a terminal of 80 columns was sent
    local code
    script -qefc "$(printf '%q ' "$@")" /dev/null >terminal 2>&1 </dev/null
    code=$?
    return $code
}
for command in "data check" "data get" import learn report reproduce train; do
    # shellcheck disable=SC2086 # two words
    expect_code 0 "der $command" "$DER" $command --help
    check "has --quiet" grep -q '^  --quiet ' out
done
expect_code 0 "a run" "$DER" train "${tiny[@]}" --set step_classes=1 --out run
expect_code 0 "a quiet run" "$DER" train "${tiny[@]}" --set step_classes=1 --quiet
check "tells nothing but results" test ! -s err -a -s out
check "training on a terminal" on_terminal "$DER" train "${tiny[@]}"
check "shows progress in a line that is rewritten" grep -q $'\r.*epoch 1/1.*\033\[K' terminal
check "quiet training on a terminal" on_terminal "$DER" train "${tiny[@]}" --quiet
check_not "shows none" grep -q $'epoch 1/1\|\033\[K' terminal
check "checking quietly on a terminal" on_terminal "$DER" data check "$root/tests/data/fixtures/idx_plain" --quiet
check_not "shows none either" grep -q $'\033\[K' terminal
expect_code 0 "a quiet report" "$DER" report run -o page.html --quiet
check "says nothing" test ! -s out -a ! -s err -a -s page.html

# ---- colour ------------------------------------------------------------------------------------------

colour=$'\033\['
check_fails "an error on a terminal" on_terminal "$DER" frobnicate
check "has a red prefix" grep -q $'^\033\[1;31mder:\033\[0m unknown command' terminal
check "headings on a terminal" on_terminal "$DER" nets
check "are bold" grep -q $'^\033\[1mname .*' terminal
check "help on a terminal" on_terminal "$DER" help
check "has bold headings" grep -q $'^\033\[1mCommands:' terminal
NO_COLOR='' on_terminal "$DER" nets
check "an empty NO_COLOR changes nothing" grep -q "$colour" terminal
for variable in NO_COLOR=1 TERM=dumb; do
    for words in frobnicate nets "help train"; do
        # shellcheck disable=SC2086 # two words
        (export "${variable?}" && on_terminal "$DER" $words)
        check "der $words writes something with $variable" test -s terminal
        check_not "and no colour" grep -q "${colour}[0-9]" terminal
    done
done
TERM=dumb on_terminal "$DER" train "${tiny[@]}"
check_not "nor are lines rewritten on a terminal that cannot" grep -q "$colour" terminal
for words in nets help frobnicate "presets custom"; do
    # shellcheck disable=SC2086 # two words
    "$DER" $words >out 2>&1
    check_not "der $words has no colour in a file" grep -q "$colour" out
done

done_testing
