#compdef der
# Completion of der in zsh: this file as _der in a folder of $fpath, or `source <(der completion zsh)` behind
# compinit. The program knows what can come next; this only asks it.

_der() {
    local line word about paths
    local -a lines closed open
    lines=("${(@f)$("${${(Q)words[1]}/#\~/$HOME}" completion words -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    paths=$lines[1]
    for line in "${(@)lines[2,-1]}"; do
        word=${line%%$'\t'*} about=${line#*$'\t'}
        if [[ $word == *[=:] ]]; then # its value follows without a space
            open+=("${word//:/\\:}:$about")
        else
            closed+=("${word//:/\\:}:$about")
        fi
    done

    local missed=1
    (($#closed)) && _describe -t words der closed && missed=0
    (($#open)) && _describe -t words der open -S '' && missed=0
    if [[ $paths != words ]]; then
        [[ $PREFIX == --*=* ]] && compset -P '*='
        if [[ $paths == files ]]; then
            _files && missed=0
        else
            _files -/ && missed=0
        fi
    fi
    return missed
}

if [[ $funcstack[1] == _der ]]; then
    _der "$@"
else
    compdef _der der
fi
