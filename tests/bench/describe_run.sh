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
