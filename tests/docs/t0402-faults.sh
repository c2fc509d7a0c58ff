#!/bin/bash
# Documents with one fault each: run_docs.py finds it, and nothing in those without.
# shellcheck disable=SC2016,SC2317 # backticks are for the documents; run_docs is called by name
. "$(dirname "$0")/../support/test-lib.sh"
begin='<!-- commands: made by tests/docs/run_docs.py -->'
end='<!-- /commands -->'

document() { # LINES...: writes doc.md
    printf '%s\n' "$@" >doc.md
}

run_docs() { # OPTIONS...: of doc.md
    env -u DER_UPDATE python3 "$test_dir/run_docs.py" "$@" doc.md
}

finds() { # NAME PATTERN: doc.md has a fault, and what is said about it matches
    check_fails "$1" run_docs
    check "and says what" grep -Eq -- "^# .*$2" out
}

document 'A command:' '' '```sh' 'build/der presets  # all of them' 'cd build' './der help train' '```' '' \
    'as `der help`, `make test` and `tools/test.sh`.'
expect_code 0 "a document in order is followed" run_docs
check "command by command" grep -q '^ok 3 - doc.md:6: ./der help train' out

document '```sh' 'build/der presets --jsno' '```'
finds "a wrong flag" 'exit status 2'
document '```sh' 'build/der pretests' '```'
finds "a wrong command" "pretests"
document '```sh' 'build/der train --preset cifar100-b0-11 --data CIFAR --out run' '```'
finds "a preset that does not exist" "did you mean 'cifar100-b0-10'"
document '```sh' 'make tset' '```'
finds "a target that nobody runs" "who runs 'make tset'"
document '```sh' 'cmake --preset devel' '```'
finds "a CMake preset that does not exist" "no preset 'devel'"
document '```sh' "ctest --preset dev -L '^grahp\$'" '```'
finds "a group that does not exist" "no group 'grahp'"
document '```sh' 'bench/run.sh --onyl train' '```'
finds "a flag that a script does not know" "does not know --onyl"
document '```sh' 'bench/cuda_torch.py --rounds 1' '```'
finds "a script that cannot be run by its name" "cannot be run"
document '```sh' 'build/fuzz/fuzz/fuzz_nothing corpus' '```'
finds "a program that nothing builds" "fuzz_nothing"
document 'See `der train --resmue`.'
finds "a wrong flag in the text" "train does not know --resmue"
document 'See `make tset`.'
finds "a wrong target in the text" "no target tset"
document 'See `tools/tset.sh`.'
finds "a file in the text that is not there" "no tools/tset.sh"
document '    build/der presets'
finds "code that is not fenced" "line 1: code stands between"
document '```bash' 'build/der presets' '```'
finds "a language that nobody runs" "names its language"
document '```text' 'build/der presets' '```'
finds "a command that calls itself text" "belongs|stands in a block of sh"
document '```sh' 'build/der presets'
finds "a block without an end" "has no end"
document '```c' 'int main(void) { return 0; }' '```'
finds "a program without a name" "no file name"
document '```c a.c' 'int main(void) { int unused; return 0; }' '```' '```sh' 'cc a.c' '```'
finds "a program with a warning" "unused"
document '```c' 'struct der_ctx_options options = {.treads = 1};' '```'
finds "a piece of C with a wrong member" "treads"
document '```python a.py' 'print(1)' '```'
finds "a file that no command uses" "a.py"

# The list.
document '```sh' 'make test' '```'
printf '%s\n' before "$begin" "$end" after >list.md
check_fails "a command that is not run as it stands must be listed" run_docs --list list.md
check "and is named" grep -q '^# not listed: | doc.md | `make test` | looked up' out
check "nothing is written unasked" test "$(wc -l <list.md)" -eq 4
expect_code 0 "the list is made on request" env DER_UPDATE=1 python3 "$test_dir/run_docs.py" --list list.md doc.md
expect_code 0 "and then is right" run_docs --list list.md
check "around it all is as it was" test "$(head -n 1 list.md)$(tail -n 1 list.md)" = beforeafter
document '```sh' 'true' '```'
check_fails "a command that is listed must be there" run_docs --list list.md
check "or is named" grep -q '^# listed, but not met: | doc.md | `make test`' out

done_testing
