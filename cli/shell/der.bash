# Completion of der in bash: `source <(der completion bash)`, or this file as
# /usr/share/bash-completion/completions/der. The program knows what can come next; this only asks it.

_der() {
    local line=${COMP_LINE:0:COMP_POINT} words=() last=-1 i
    # bash also splits at = and :, which are part of our words; the line tells what belongs together.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        local word=${COMP_WORDS[i]}
        if [[ $last -lt 0 || $line == [[:space:]]* ]]; then
            line=${line#"${line%%[![:space:]]*}"}
            words+=("")
            last=$((last + 1))
        fi
        ((i < COMP_CWORD)) || word=$line # only up to the cursor
        words[last]+=$word
        line=${line#"$word"}
    done

    local typed=${words[last]} tail=${words[last]} sign
    for sign in = :; do # what readline takes for the word begins behind them
        if [[ $COMP_WORDBREAKS == *"$sign"* && ${#typed} -gt 0 && ${typed##*"$sign"} != "$typed" ]]; then
            local behind=${typed##*"$sign"}
            ((${#behind} < ${#tail})) && tail=$behind
        fi
    done

    local paths candidate
    COMPREPLY=()
    {
        read -r paths
        while IFS=$'\t' read -r candidate _; do
            candidate=${candidate#"${typed%"$tail"}"}
            [[ $candidate ]] || continue # it is there already
            printf -v candidate %q "$candidate"
            COMPREPLY+=("$candidate")
        done
    } < <("${1/#\~/$HOME}" completion words -- "${words[@]}" 2>/dev/null)

    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
    case $paths in
    files) compopt -o default 2>/dev/null ;;
    folders) compopt -o dirnames 2>/dev/null ;;
    esac
}
complete -F _der der
