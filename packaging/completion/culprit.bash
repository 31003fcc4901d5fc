# SPDX-License-Identifier: Apache-2.0
# Completion of culprit's commands, options and files for bash. culprit itself says what there is.

_culprit() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]} value
	local -a candidates

	COMPREPLY=()
	if ((COMP_CWORD == 1)) || { ((COMP_CWORD == 2)) && [[ $before == help ]]; }; then
		mapfile -t candidates < <("$program" --list-commands 2>/dev/null | cut -f 1)
		mapfile -t COMPREPLY < <(compgen -W "${candidates[*]} help" -- "$word")
		return
	fi
	if [[ $word == -* ]]; then
		mapfile -t candidates < <("$program" "${COMP_WORDS[1]}" --list-options 2>/dev/null | cut -f 1)
		mapfile -t COMPREPLY < <(compgen -W "${candidates[*]}" -- "$word")
		return
	fi
	value=$("$program" "${COMP_WORDS[1]}" --list-options 2>/dev/null |
		awk -F '\t' -v option="$before" '$1 == option || $2 == option { print $3 }')
	case $value in
	'' | *FILE* | *DIR* | *PATH*) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
	PID*) mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$word") ;;
	esac
}
complete -o filenames -F _culprit culprit
