# Completion of heapledger in bash. The command says itself what there is to complete.
_heapledger() {
    local current=$2 words=("${COMP_WORDS[@]:1:COMP_CWORD}") answer kind argument
    # The sign of `--option=value` is a word of its own, and belongs to none that is completed.
    words[COMP_CWORD - 1]=$current
    mapfile -t answer < <("$1" complete-words -- "${words[@]}" 2>/dev/null)
    read -r kind argument <<< "${answer[0]}"
    COMPREPLY=("${answer[@]:1}")
    COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
    case $kind in
        files)
            if ((${#COMPREPLY[@]} == 0)); then
                compopt -o default
            else
                compopt -o filenames
                mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current")
            fi
            ;;
        directories) compopt -o dirnames ;;
        command) _heapledger_command $((argument + 1)) ;;
    esac
}

# Completes the command line that begins with the word of this number.
_heapledger_command() {
    local offset
    for offset in _comp_command_offset _command_offset; do
        if declare -F "$offset" >/dev/null; then
            "$offset" "$1"
            return
        fi
    done
    if (($1 == COMP_CWORD)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
    fi
    compopt -o default
}

complete -F _heapledger heapledger
