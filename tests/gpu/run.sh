#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Runs the tests that need a GPU: tests/gpu/run.sh [PART...]. Without arguments all parts run, in this order:
#   operations   runs the conformance suite of devices, with cuBLASLt's epilogues never, always and as measured
#   gpt2         runs that suite at the shapes of GPT-2; this takes some minutes
#   models       compares training steps of the models with those of the CPU, on one card and on several; if the machine has
#                one card, it stands for several
#   modes        trains in the modes sync, local_sgd and async on one card that two workers share
#   memcheck     runs operations under compute-sanitizer, which finds wrong memory accesses
#   racecheck    runs operations under compute-sanitizer, which finds missing barriers
# In a package (deploy/package.sh) nothing is built; in a clone the programs are built first.
# The last line is "N passed, N failed, N skipped". Exit code 0 means that parts passed and none failed, 1 that a part failed,
# 77 that nothing was tested, as without a GPU.
set -uo pipefail

readonly no_gpu_code=77
readonly all_parts=(operations gpt2 models modes memcheck racecheck)
root="$(readlink -f "$(dirname "$(readlink -f "$0")")/../..")"
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$root/deploy/script_help.sh"
answer_help "$@"
# shellcheck source-path=SCRIPTDIR source=sanitizer_filter.sh
source "$root/tests/gpu/sanitizer_filter.sh"
cd "$root" || exit 1

parts=("$@")
(($# > 0)) || parts=("${all_parts[@]}")
for part in "${parts[@]}"; do
  [[ " ${all_parts[*]} " == *" $part "* ]] && continue
  echo "run.sh: unknown argument $part; parts are ${all_parts[*]}; see --help" >&2
  exit 2
done

if [[ -x bin/cuda_device_test ]]; then
  bin="$root/bin"
else
  deploy/install_deps.sh || exit 1
  staging="$(mktemp -d)"
  trap 'rm -rf "$staging"' EXIT
  deploy/package.sh --folder="$staging/lodestar" || exit 1
  bin="$staging/lodestar/bin"
fi
if [[ ! -x "$bin/cuda_device_test" ]]; then
  echo "This package has no CUDA plugin: it was made on a machine without nvcc. Nothing was tested."
  echo "0 passed, 0 failed, ${#parts[@]} skipped"
  exit $no_gpu_code
fi

# The filter matches no test, so the program only looks for a card.
code=0
"$bin/cuda_device_test" --gtest_filter='-*' || code=$?
if ((code == no_gpu_code)); then
  echo "No test ran: there is no usable GPU here (the reason is above)."
  echo "0 passed, 0 failed, ${#parts[@]} skipped"
  exit $no_gpu_code
elif ((code != 0)); then
  echo "FAILED: looking for a card ended with exit code $code."
  echo "0 passed, ${#parts[@]} failed, 0 skipped"
  exit 1
fi

passed=0 failed=0 skipped=0
run() {
  local name="$1" code=0
  shift
  echo "==> $name"
  "$@" || code=$?
  case $code in
    0) ((++passed)) ;;
    "$no_gpu_code") ((++skipped)) ;;
    *) ((++failed)) && echo "FAILED $name (exit code $code)" ;;
  esac
}

run_sanitizer() {  # TOOL
  local sanitizer filter
  sanitizer="$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)"
  if [[ ! -x "$sanitizer" ]]; then
    echo "SKIPPED $1: compute-sanitizer is neither on the PATH nor in /usr/local/cuda/bin"
    return $no_gpu_code
  fi
  filter="$(sanitizer_filter "$bin/cuda_device_test")" || return 1
  "$sanitizer" --tool="$1" --error-exitcode=1 "${sanitizer_options[@]}" "$bin/cuda_device_test" --gtest_filter="$filter"
}

for part in "${parts[@]}"; do
  case "$part" in
    operations) run "$part" "$bin/cuda_device_test" --gtest_filter="-*Gpt2ConformanceTest*" ;;
    gpt2) run "$part" "$bin/cuda_device_test" --gtest_filter="*Gpt2ConformanceTest*" ;;
    models) run "$part" "$bin/cuda_model_test" ;;
    modes) run "$part" python3 -B tests/gpu/three_modes_test.py "$bin/ps_server" "$bin/gpu_worker" "$bin/psctl" ;;
    memcheck | racecheck) run "$part" run_sanitizer "$part" ;;
  esac
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0)) || exit 1
((passed > 0)) || exit $no_gpu_code
