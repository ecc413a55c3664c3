#compdef heapledger
# Completion of heapledger in zsh. The command says itself what there is to complete.

_heapledger() {
    local -a answer values
    local line kind argument
    answer=("${(@f)$(${~${(Q)words[1]}} complete-words -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    kind=${answer[1]%% *}
    argument=${answer[1]#* }
    for line in "${(@)answer[2,-1]}"; do
        values+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    (($#values)) && _describe -t values value values
    case $kind in
        files)
            [[ -n $argument ]] && compset -P 1 '*='
            _files
            ;;
        directories)
            [[ -n $argument ]] && compset -P 1 '*='
            _files -/
            ;;
        command)
            shift $((argument + 1)) words
            ((CURRENT -= argument + 1))
            _normal -p heapledger
            ;;
    esac
}

if [[ $funcstack[1] == _heapledger ]]; then
    _heapledger "$@"
else
    compdef _heapledger heapledger
fi
