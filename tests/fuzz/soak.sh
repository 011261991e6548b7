#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Looks for inputs that break a parser, for long: tests/fuzz/soak.sh [TARGET] [--minutes=N]
# TARGET: chunks, messages, files, history, shard_records, data, security, connection, pages or logs; all of them one
# after the other unless said otherwise, each for N minutes (10).
# With clang 14 (packages clang-14 and libclang-rt-14-dev) by libFuzzer and AddressSanitizer; without,
# or where clang does not compile a target, by our own driver and AddressSanitizer.
# What is found lies in fuzz-findings/; put it into tests/fuzz/corpus/TARGET as found-NAME when it is
# mended.
# Exit code 0 only if nothing was found.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
answer_help "$@"

targets=(chunks messages files history shard_records data security connection pages logs)
minutes=10
for argument in "$@"; do
  case "$argument" in
    --minutes=[1-9]*) minutes="${argument#--minutes=}" ;;
    -*)
      echo "soak.sh: unknown argument $argument; see --help" >&2
      exit 2
      ;;
    *) targets=("$argument") ;;
  esac
done
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1
for target in "${targets[@]}"; do
  [[ -d tests/fuzz/corpus/$target ]] || {
    echo "soak.sh: there is no target $target; see --help" >&2
    exit 2
  }
done

readonly findings="$PWD/fuzz-findings"
readonly seconds=$((minutes * 60))
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$findings"
all_sound=true

# build CONFIG TARGET
build() {
  bazel build --noshow_progress --ui_event_filters=-info --config="$1" "//tests/fuzz:$2_fuzz" \
    >"$work/build" 2>&1 && cp -L "bazel-bin/tests/fuzz/$2_fuzz" "$work/program"
}

by_libfuzzer() {
  mkdir -p "$work/corpus"
  "$work/program" -max_total_time="$seconds" -malloc_limit_mb=64 -rss_limit_mb=4096 -timeout=60 \
    -artifact_prefix="$findings/$1-" -print_final_stats=1 \
    "$work/corpus" "tests/fuzz/corpus/$1" >"$work/log" 2>&1 || {
    grep -E '^==|ERROR|check failed|written to' "$work/log"
    all_sound=false
  }
  local total rate
  total="$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")"
  rate="$(sed -n 's/^stat::average_exec_per_sec: *//p' "$work/log")"
  echo "$1: libFuzzer: ${total:-0} executions, ${rate:-0} a second"
  rm -rf "$work/corpus"
}

by_driver() {
  local total=0 seed end=$((SECONDS + seconds))
  local -r batch=20000
  for ((seed = 1; SECONDS < end; ++seed)); do
    TEST_UNDECLARED_OUTPUTS_DIR="$work" "$work/program" "tests/fuzz/corpus/$1" \
      --executions=$batch --seed=$seed >"$work/log" 2>&1 || {
      cat "$work/log"
      mv "$work/fuzz-failure" "$findings/$1-seed-$seed"
      all_sound=false
      break
    }
    ((total += batch))
  done
  echo "$1: own driver: $total executions, $((total / (seconds > 0 ? seconds : 1))) a second"
}

for target in "${targets[@]}"; do
  rm -f "$work/program"
  if command -v clang >/dev/null && build fuzz "$target"; then
    by_libfuzzer "$target"
  elif build asan "$target"; then
    by_driver "$target"
  else
    cat "$work/build"
    exit 1
  fi
done
$all_sound
