# Completion of heapledger in fish. The command says itself what there is to complete.

function __heapledger_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l answer ($words[1] complete-words -- $words[2..] $current 2>/dev/null)
    set -l kind (string split -m 1 ' ' -- $answer[1])
    printf '%s\n' $answer[2..]
    switch $kind[1]
        case files
            __fish_complete_path (string sub -s (math (string length -- "$kind[2]") + 1) -- "$current") \
                | string replace -r '^' -- "$kind[2]"
        case directories
            __fish_complete_directories (string sub -s (math (string length -- "$kind[2]") + 1) -- "$current") '' \
                | string replace -r '^' -- "$kind[2]"
        case command
            complete -C (string join ' ' -- (string escape -- $words[(math $kind[2] + 2)..]) $current)
    end
end

complete -c heapledger -f -a '(__heapledger_complete)'
