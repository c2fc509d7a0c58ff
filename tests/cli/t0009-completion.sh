#!/bin/bash
# Completion: what the program offers, and what bash and zsh make of it.
. "$(dirname "$0")/../support/test-lib.sh"
. "$root/tests/support/commands.sh"

offers() { # "CANDIDATES" WORDS...: just these, in this order
    local want=$1
    shift
    check "der $* [Tab] offers ${want:-nothing}" test "$(words "$@" | paste -sd " ")" = "$want"
}
paths() { # KIND WORDS...: names of the file system that will do
    local want=$1
    shift
    check "der $* [Tab] takes $want" test "$("$DER" completion words -- der "$@" | head -n 1)" = "$want"
}

# ---- the program -------------------------------------------------------------------------------------

check "every command is offered" \
    test "$(words '' | xargs)" = "$("$DER" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | xargs)"
check "with its summary" grep -q "^train	train a network" <("$DER" completion words -- der '')
while read -r -a command; do
    "$DER" help "${command[@]}" >help.txt
    flags=$(sed -n 's/^  \(-[a-z], \)\{0,1\}\(--[a-z-]*\).*/\2/p' help.txt | xargs)
    offers "${flags:+$flags }--help" "${command[@]}" --
done < <(all_commands | grep -vx data)
offers "get check" data ''
offers "check" data c
offers "--help --version" --
offers "--help" data --
offers "" frobnicate ''
offers "" data frobnicate ''
offers "train" tr
offers "$("$DER" presets | awk '{ print $1 }' | xargs)" train --preset ''
offers "--preset=fashion-mnist-5" train --preset=f
offers "$("$DER" presets custom | awk '{ print $1 "=" }' | xargs)" train --set ''
offers "lambda_a= lambda_s=" reproduce T1 --set lambda_
offers "method=der method=finetune method=joint method=icarl method=wa method=bic" train --set method=
offers "--set=prune=true --set=prune=false" presets custom --set=prune=
offers "" train --set epochs=
offers "der finetune joint icarl wa bic" train --method ''
offers "every last" train --joint-steps ''
offers "f32 tf32 bf16" predict model --precision ''
offers "stop skip" learn model --bad-images ''
offers "train test" eval model --split ''
offers "representation transfer latency" train --measure latency --measure ''
offers "$("$DER" nets | awk 'NR > 1 { print $1 }' | xargs)" learn model --arch ''
offers "$("$DER" version | sed -n 's/^  back ends *//p' | tr -d ,)" eval model --device ''
offers "T1 T2 T3 T4 T5 T6 T7 T8 fig1 bound" reproduce ''
offers "finetune der-noaux der-wop" reproduce T4 --row ''
offers "finetune der-noaux der-wop" reproduce --out somewhere T4 --row ''
offers "" reproduce T9 --row ''
offers "cifar100 cifar10 fashion-mnist" data get ''
offers "bash zsh words" completion ''
offers "get check" help data ''
offers "settings" help se
offers "1 2 3 seed:" train --order ''
offers "--quiet" train --q
offers "" train --quiet --q
offers "--set" train --set lr=1 --set # may come again
paths files train --order ''
paths files train --init ''
paths files info ''
paths files predict model ''
paths files predict -- model --
paths files report run -o ''
paths folders report ''
paths folders train --data ''
paths folders train --data=x
paths words train --threads ''
expect_code 0 "no word at all is no mistake" "$DER" completion words
expect_code 2 "a shell must be named" "$DER" completion
expect_code 2 "and known" "$DER" completion powershell
check "those that are get listed" one_line err "bash, zsh or words"
expect_code 2 "a script takes no words" "$DER" completion bash der

# ---- bash, as readline calls it ----------------------------------------------------------------------

PATH=$(dirname "$DER"):$PATH
expect_code 0 "the script for bash" "$DER" completion bash
cp out der.bash
check "is the installed one" cmp der.bash "$root/cli/shell/der.bash"
check "is good bash" bash -n der.bash
cat >ask.bash <<'B'
# ask.bash LINE WORD...: COMPREPLY for a line that bash has split into these words
source ./der.bash
COMP_LINE=$1 COMP_POINT=${#1} COMP_CWORD=$(($# - 2)) COMP_WORDS=("${@:2}")
_der "$2"
echo "${COMPREPLY[@]}"
B
bash_offers() { # "CANDIDATES" LINE WORDS...
    local want=$1
    shift
    check "bash: $1 [Tab] gives ${want:-nothing}" test "$(bash ask.bash "$@")" = "$want"
}
bash_offers "get check" "der data " der data ""
bash_offers "f32 tf32 bf16" "der train --precision=" der train --precision =
bash_offers "der finetune joint icarl wa bic" "der train --set method=" der train --set method =
bash_offers "joint" "der train --set=method=j" der train --set = method = j
bash_offers "joint" "  der   train --set  method=j" der train --set method = j
bash_offers "" "der train --order seed:" der train --order seed :
bash_offers "lambda_a= lambda_s=" "$DER train --set lambda_" "$DER" train --set lambda_

# ---- both shells on a terminal -----------------------------------------------------------------------

mkdir photos
touch model.safetensors "two words.safetensors"
cat >typed <<'L'
der tra
der data ch
der train --targ
der train --preset fash
der train --preset=fash
der train --precision=t
der train --set epo
der train --set method=j
der train --set=method=j
der train --order see
der reproduce fig1 --row lambda_s=1
der info mod
der export two
der train --data pho
der train --data=pho
der train --threads pho
der frobnicate pho
L
cat >wanted <<'L'
der train
der data check
der train --target-params
der train --preset fashion-mnist-5
der train --preset=fashion-mnist-5
der train --precision=tf32
der train --set epochs=
der train --set method=joint
der train --set=method=joint
der train --order seed:
der reproduce fig1 --row lambda_s=1.5
der info model.safetensors
der export two\ words.safetensors
der train --data photos/
der train --data=photos/
der train --threads pho
der frobnicate pho
L
on_shell() { # SHELL SCRIPT
    "$root/tests/support/complete.py" "$1" "$2" <typed >raw && sed 's/ $//' raw >got
}
spaces() { # what is complete is followed by a space, what wants more is not
    grep -qx 'der train ' raw && grep -qx 'der train --set epochs=' raw && grep -qx 'der train --order seed:' raw &&
        grep -qx 'der train --data photos/' raw
}
expect_code 0 "the script for zsh" "$DER" completion zsh
cp out der.zsh
check "is the installed one" cmp der.zsh "$root/cli/shell/der.zsh"
for shell in bash zsh; do
    if command -v "$shell" >/dev/null; then
        check "$shell completes lines" on_shell "$shell" "der.$shell"
        check "to the right ones" diff -u wanted got
        check "with a space where a word is complete" spaces
    else
        skip "$shell completes lines" "no $shell"
    fi
done
if command -v zsh >/dev/null; then
    check "the script for zsh is good zsh" zsh -n der.zsh
    mkdir site-functions
    cp der.zsh site-functions/_der
    echo "fpath=($PWD/site-functions \$fpath); compinit -D -u" >fpath.zsh
    check "zsh finds it in its folder" on_shell zsh fpath.zsh
    check "and completes the same" diff -u wanted got
else
    skip "zsh finds it in its folder" "no zsh"
fi

done_testing
