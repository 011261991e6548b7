# SPDX-License-Identifier: Apache-2.0

# What scripts that people run say of themselves: sourced by them. The comment at the top of a script is its help.
# shellcheck shell=bash

show_usage() { sed -n '4,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# answer_help "$@": with -h or --help among the arguments prints the help and ends the script.
answer_help() {
  local argument
  for argument in "$@"; do
    if [[ "$argument" == -h || "$argument" == --help ]]; then
      show_usage
      exit 0
    fi
  done
}

# answer_help_with PROGRAM.py "$@": the same, for a script whose flags are those of a program.
answer_help_with() {
  local help
  help="$(answer_help "${@:2}")"
  [[ -n "$help" ]] || return 0
  echo "$help"
  echo
  python3 -B "$1" --help
  exit 0
}

# take_no_arguments "$@": ends a script that has no options if it is given any.
take_no_arguments() {
  answer_help "$@"
  (($# == 0)) && return
  echo "$(basename "$0"): unknown argument $1; see --help" >&2
  exit 2
}
