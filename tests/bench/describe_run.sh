# SPDX-License-Identifier: Apache-2.0

# Sourced by the benchmarks: the lines above a table that say where and how it was measured.

# describe_run COMMAND...: the machine, what else runs on it, the commit and the command.
describe_run() {
  local cpu memory load
  cpu="$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -1)"
  memory="$(awk '/^MemTotal:/ {printf "%.0f GB", $2 / 1e6}' /proc/meminfo)"
  load="$(cut -d' ' -f1 /proc/loadavg)"
  echo "- Machine: $cpu, $(nproc) hardware threads, $memory, Linux $(uname -r); load before: $load."
  echo "- Commit: $(git describe --always --dirty --exclude='*'), $(date -u +%F)."
  echo "- Command: \`$*\`"
  echo
}

# built_binary TARGET: builds it and prints its path. BAZEL may name another bazel command.
built_binary() {
  local folder
  # shellcheck disable=SC2086  # BAZEL may carry options
  ${BAZEL:-bazel} build "$1" >&2
  # shellcheck disable=SC2086
  folder="$(${BAZEL:-bazel} info bazel-bin 2>/dev/null)"
  echo "$folder/$(sed 's|^//||; s|:|/|' <<<"$1")"
}

# link_programs FOLDER: builds ps_server, gpu_worker and psctl and puts links to them there.
link_programs() {
  local target program
  for target in //server:ps_server //worker:gpu_worker //deploy/psctl:psctl; do
    program="$(built_binary "$target")"
    ln -s "$program" "$1/"
  done
}

# begin_with_data FOLDER/PROGRAM.py "$@": of a script that is given DATA and flags of that program. Answers --help, sets `command`, for the
# table, and `data`, a whole path, and goes to the root of the repository; without DATA it ends the script with its usage.
begin_with_data() {
  local folder
  folder="$(dirname "$(readlink -f "$0")")"
  answer_help_with "$folder/$1" "${@:2}"
  if (($# < 2)) || [[ "$2" == -* ]]; then
    show_usage >&2
    exit 2
  fi
  command="tests/bench/$(basename "$0") ${*:2}"
  data="$(readlink -f "$2")"
  readonly command data
  cd "$folder/../.."
}
