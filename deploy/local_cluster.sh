# SPDX-License-Identifier: Apache-2.0

# Servers and workers of one job on this machine, for scripts that people run: sourced by deploy/quickstart.sh and
# deploy/examples/*.sh. Whatever is started here ends with the script, also after Ctrl-C. Needs bash 5.1.
#
# The script reads its options, finds the programs, and enters `out`, the folder for logs and results.
# shellcheck shell=bash

root="$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")"
# shellcheck source-path=SCRIPTDIR source=script_help.sh
source "$root/deploy/script_help.sh"
started_pids=() server_pids=() worker_pids=() follower_pid=''

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

say() { echo "==> $*"; }

usage() {
  show_usage
  echo
  echo "  --programs=DIR  use the programs in this folder (or in a folder with the structure of bazel-bin) instead of building them"
}

# read_options "NAME ..." ARGUMENTS: sets the variables so named from --NAME=VALUE; --NAME alone is "yes".
read_options() {
  local known=" $1 " argument name
  for argument in "${@:2}"; do
    if [[ "$argument" == -h || "$argument" == --help ]]; then
      usage
      exit 0
    fi
    name="${argument%%=*}"
    name="${name#--}"
    [[ "$argument" == --* && "$known" == *" $name "* ]] || fail "unknown argument $argument; see --help"
    if [[ "$argument" == *=* ]]; then
      printf -v "$name" %s "${argument#*=}"
    else
      printf -v "$name" yes
    fi
  done
}

# new_folder BASE: makes BASE, or BASE-2, BASE-3 and so on if that is there, and prints its path.
new_folder() {
  local folder="$1" number=1
  until mkdir "$folder" 2>/dev/null; do
    [[ -e "$folder" ]] || return 1
    number=$((number + 1))
    folder="$1-$number"
  done
  realpath "$folder"
}

# enter_out_folder "NAME ...": makes `out` a folder and goes there, so that commands can be shown with short paths: the
# one named, which must be new or empty, or a new one here that is called after the script. The variables named may hold
# paths.
enter_out_folder() {
  local name
  for name in $1; do
    [[ ! -e "${!name}" ]] || printf -v "$name" %s "$(realpath "${!name}")"
  done
  if [[ -z "$out" ]]; then
    out="$(new_folder "$PWD/lodestar-$(basename "$0" .sh)")" ||
      fail "cannot make a folder for the results in $PWD; give one with --out=DIR"
  else
    mkdir -p "$out"
    [[ -z "$(ls -A "$out")" ]] || fail "--out=$out is not empty; give an empty or new folder"
    out="$(realpath "$out")"
  fi
  cd "$out" || exit
}

# --- Processes ---

stop_all() {
  trap '' INT TERM
  ((${#started_pids[@]})) || return 0
  kill -TERM "${started_pids[@]}" 2>/dev/null || true
  kill -CONT "${started_pids[@]}" 2>/dev/null || true  # a stopped process takes no other signal
  for _ in {1..50}; do
    kill -0 "${started_pids[@]}" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "${started_pids[@]}" 2>/dev/null || true
  wait "${started_pids[@]}" 2>/dev/null || true
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a command so that a signal to this script ends it at once.
run() {
  "$@" &
  local pid=$! code=0
  started_pids+=("$pid")
  wait "$pid" || code=$?
  unset 'started_pids[-1]'
  return "$code"
}

# Starts a command whose output goes to NAME.log; `pid` is its process.
start() {
  local name="$1"
  shift
  touch "$name.log"  # for a reader that looks before the process does
  "$@" >>"$name.log" 2>&1 &
  pid=$!
  started_pids+=("$pid")
}

# Shows a command as one would type it.
show() { echo "\$ $(basename "$1") ${*:2}"; }

# --- Programs ---

# From FOLDER, which has them or is laid out as bazel-bin is; from a package around this file; or built here.
find_programs() {
  local folder="${1:-}" program
  if [[ -z "$folder" && -x "$root/bin/ps_server" ]]; then folder="$root/bin"; fi
  if [[ -z "$folder" ]]; then
    run "$root/deploy/install_deps.sh"
    say "Building: the first time takes some ten minutes on two cores; [DONE / STEPS] is printed every ten seconds"
    # --batch: no build server stays behind.
    run env --chdir="$root" bazel --batch build --curses=no --color=no --show_progress_rate_limit=10 --ui_event_filters=-info \
      //server:ps_server //worker:gpu_worker //deploy/psctl:psctl ||
      fail "the build failed; the errors are above"
    folder="$root/bazel-bin"
  fi
  folder="$(realpath "$folder")"
  if [[ -x "$folder/ps_server" ]]; then
    ps_server="$folder/ps_server" gpu_worker="$folder/gpu_worker" psctl="$folder/psctl"
  else
    ps_server="$folder/server/ps_server" gpu_worker="$folder/worker/gpu_worker" psctl="$folder/deploy/psctl/psctl"
  fi
  for program in "$ps_server" "$gpu_worker" "$psctl"; do
    [[ -x "$program" ]] || fail "$program does not exist; give --programs=DIR with the folder that has ps_server, gpu_worker and psctl"
  done
}

# --- A job ---

# start_server NAME FLAGS: on a port that the system chooses; `address` is where it listens.
start_server() {
  local name="$1"
  local command=("$ps_server" --listen=127.0.0.1:0 --port_file="$name.port" "${@:2}")
  show "${command[@]}"
  rm -f "$name.port"
  start "$name" "${command[@]}"
  server_pids+=("$pid")
  until [[ -s "$name.port" ]]; do
    kill -0 "$pid" 2>/dev/null || fail "the server did not start; the end of its log: $(tail -n 3 "$name.log")"
    sleep 0.05
  done
  address="127.0.0.1:$(<"$name.port")"
}

# start_worker NAME FLAGS: for the server at `address`.
start_worker() {
  local command=("$gpu_worker" --coordinator="$address" --name="$1" "${@:2}")
  show "${command[@]}"
  start "$1" "${command[@]}"
  worker_pids+=("$pid")
}

# follow NAME: shows the log of the worker that was started last, as it grows; await_workers() waits for its end.
follow() {
  tail --pid="$pid" --sleep-interval=0.2 --lines=+1 --follow "$1.log" &
  follower_pid=$!
  started_pids+=("$follower_pid")
}

# The workers end by themselves, and well; the servers stay.
await_workers() {
  local running=("${worker_pids[@]}") code ended i
  while ((${#running[@]})); do
    code=0
    wait -n -p ended "${server_pids[@]}" "${running[@]}" || code=$?
    if ((code != 0)) || [[ " ${server_pids[*]} " == *" $ended "* ]]; then
      tail -n 5 ./*.log >&2
      fail "a process ended early (exit code $code); logs are in $out"
    fi
    for i in "${!running[@]}"; do
      [[ "${running[i]}" != "$ended" ]] || unset "running[i]"
    done
  done
  worker_pids=()
  [[ -z "$follower_pid" ]] || wait "$follower_pid" || true
  follower_pid=''
}

# ask COMMAND FLAGS: psctl about the job at `address`.
ask() {
  local command=("$psctl" "$1" --server="$address" "${@:2}")
  show "${command[@]}"
  run "${command[@]}"
}

# psctl stop, after which the servers end by themselves, and well.
stop_job() {
  ask stop
  local server
  for server in "${server_pids[@]}"; do
    wait "$server" || fail "a server ended with an error; the end of its log: $(tail -qn 3 ./*server*.log)"
  done
  server_pids=()
}

# --- Results ---

# last_value FIELD FILE: the last value of a field in a file of --metrics_out.
last_value() { sed -n "s/.*\"$1\":\([-+.0-9e]*\)[,}].*/\1/p" "$2" | tail -n 1; }

# heldout_bits FILE [BYTES_PER_TOKEN]: the last held-out loss in bits per byte.
heldout_bits() { awk -v nats="$(last_value heldout_loss "$1")" -v bytes="${2:-1}" 'BEGIN { printf "%.3f", nats / log(2) / bytes }'; }

# Makes a folder `text` here and prints its path: the manual of Perl's modules without its code, 3 MB of English that
# comes with git.
default_text() {
  local modules
  modules="$(find /usr/share/perl -mindepth 1 -maxdepth 1 -type d -name '5.*' | sort -V | tail -n 1)"
  [[ -n "$modules" ]] || fail "there is no training text, because /usr/share/perl has no Perl modules; give a text with --data=PATH"
  mkdir text
  # shellcheck disable=SC2016  # the program is Perl's
  find "$modules" -type f \( -name '*.pm' -o -name '*.pod' \) -print0 | sort -z | xargs -0 perl -MPod::Text -e '
    *Pod::Text::cmd_verbatim = sub { "" };
    for my $module (@ARGV) {
      my $parser = Pod::Text->new(width => 78, indent => 0, errors => "none", utf8 => 1);
      $parser->output_string(\my $text);
      $parser->parse_file($module);
      next unless length $text;
      $text =~ s/^ +//mg;
      $text =~ s/\n{3,}/\n\n/g;
      (my $name = $module) =~ s{^/usr/share/perl/[^/]*/}{};
      $name =~ tr{/}{-};
      open(my $file, ">", "text/$name.txt") or die "text/$name.txt: $!";
      print $file $text;
    }'
  echo "$PWD/text"
}
