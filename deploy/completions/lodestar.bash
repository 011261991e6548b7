# Completion of flags and commands of ps_server, gpu_worker and psctl, for bash and zsh. The programs themselves say what
# there is, so that it fits whatever version is installed.
#
#   bash: source lodestar.bash        zsh: autoload -U +X bashcompinit && bashcompinit, then the same
# shellcheck shell=bash disable=SC2207  # no word of them has blanks

# _lodestar_flags PROGRAM [COMMAND]: the flags, a line each, those with values with "=".
_lodestar_flags() {
  local text
  if [ -n "${2:-}" ]; then text="$("$1" help "$2" 2>/dev/null)"; else text="$("$1" --helpfull 2>/dev/null)"; fi
  printf '%s\n' "$text" | sed -n -e 's/^  \(--[a-z0-9_]*\)=\(true\|false\)$/\1/p' -e 't' -e 's/^  \(--[a-z0-9_]*\)\(=.*\)\{0,1\}$/\1=/p'
}

_lodestar_psctl_commands() { "$1" help 2>/dev/null | sed -n 's/^  psctl \([a-z-]*\).*/\1/p' | sort -u; }

# _lodestar_psctl_second_words PROGRAM COMMAND: "create", "list" and "revoke" of "psctl token create [...] | list | revoke ID".
_lodestar_psctl_second_words() {
  "$1" help 2>/dev/null | sed -n "s/^  psctl $2 \([a-z]\)/| \1/p" | grep -o '| [a-z]*' | tr -d '| '
}

_lodestar() {
  local program="${COMP_WORDS[0]}" word="${COMP_WORDS[COMP_CWORD]}" command='' i
  COMPREPLY=()
  # The value of a flag is mostly a path. bash makes words of "--data", "=" and "PATH".
  if [ "$word" = "=" ]; then word=''; fi
  if [ "${COMP_WORDS[COMP_CWORD]}" = "=" ] || [ "${COMP_WORDS[COMP_CWORD - 1]}" = "=" ]; then
    COMPREPLY=($(compgen -f -- "$word"))
    return
  fi
  if [ "${program##*/}" = psctl ]; then
    for ((i = 1; i < COMP_CWORD; ++i)); do
      case "${COMP_WORDS[i]}" in
        --) program="$(command -v ps_server || true)" command='' && break ;;
        -*) ;;
        help) ;;
        *) if [ -z "$command" ]; then command="${COMP_WORDS[i]}"; fi ;;
      esac
    done
    if [ "${program##*/}" = psctl ] && [ -z "$command" ] && [ "${word#-}" = "$word" ]; then
      COMPREPLY=($(compgen -W "$(_lodestar_psctl_commands "$program")" -- "$word"))
      return
    fi
    if [ -n "$command" ] && [ "${COMP_WORDS[COMP_CWORD - 1]}" = "$command" ] && [ "${word#-}" = "$word" ]; then
      COMPREPLY=($(compgen -W "$(_lodestar_psctl_second_words "$program" "$command")" -- "$word"))
      if [ ${#COMPREPLY[@]} -gt 0 ]; then return; fi
    fi
  fi
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$(_lodestar_flags "$program" "$command")" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
  # No blank behind "--name=".
  if [ ${#COMPREPLY[@]} -eq 1 ] && [ "${COMPREPLY[0]%=}" != "${COMPREPLY[0]}" ]; then compopt -o nospace 2>/dev/null || true; fi
}

complete -F _lodestar ps_server gpu_worker psctl
