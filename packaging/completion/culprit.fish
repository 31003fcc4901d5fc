# SPDX-License-Identifier: Apache-2.0
# Completion of culprit's commands, options and files for fish. culprit itself says what there is.

function __culprit_options
    set -l words (commandline -opc)
    $words[1] $words[2] --list-options 2>/dev/null | while read -d \t -l name letter value help
        printf '%s\t%s\n' $name $help
    end
end

complete -c culprit -n 'test (count (commandline -opc)) -eq 1' -f -a '(culprit --list-commands 2>/dev/null)'
complete -c culprit -n '__fish_seen_subcommand_from help' -f -a '(culprit --list-commands 2>/dev/null)'
complete -c culprit -n 'test (count (commandline -opc)) -gt 1; and string match -q -- "-*" (commandline -ct)' -f -a '(__culprit_options)'
