#!/bin/bash
# All tests that need a GPU: tests/gpu/run.sh
# In a package (deploy/package.sh) nothing is built; in a clone they are built first.
# Last line: "N passed, N failed, N skipped". Exit code: 0 all passed; 1 some failed; 77 no GPU, nothing was tested.
set -uo pipefail

readonly no_gpu_code=77
root="$(readlink -f "$(dirname "$(readlink -f "$0")")/../..")"
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$root/deploy/script_help.sh"
take_no_arguments "$@"
# shellcheck source-path=SCRIPTDIR source=sanitizer_filter.sh
source "$root/tests/gpu/sanitizer_filter.sh"
cd "$root" || exit 1

if [[ -x bin/cuda_device_test ]]; then
  bin="$root/bin"
else
  deploy/install_deps.sh || exit 1
  staging="$(mktemp -d)"
  trap 'rm -rf "$staging"' EXIT
  deploy/package.sh --folder="$staging/lodestar" || exit 1
  bin="$staging/lodestar/bin"
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

if [[ -x "$bin/cuda_device_test" ]]; then
  run "operations" "$bin/cuda_device_test"
else
  echo "This package has no CUDA plugin: it was made on a machine without nvcc. Nothing was tested."
  echo "0 passed, 0 failed, 1 skipped"
  exit $no_gpu_code
fi
if ((skipped)); then
  echo "No test ran: there is no usable GPU here (the reason is above)."
  echo "0 passed, 0 failed, 1 skipped"
  exit $no_gpu_code
fi
run "models" "$bin/cuda_model_test"
run "three modes" python3 -B tests/gpu/three_modes_test.py "$bin/ps_server" "$bin/gpu_worker" "$bin/psctl"
sanitizer="$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)"
if [[ -x "$sanitizer" ]]; then
  # With a pattern that matches nothing the rest is looked at, and the run fails.
  filter="$(sanitizer_filter "$bin/cuda_device_test")" || ((++failed))
  for tool in memcheck racecheck; do
    run "operations under compute-sanitizer $tool" "$sanitizer" --tool="$tool" --error-exitcode=1 \
      "$bin/cuda_device_test" --gtest_filter="$filter"
  done
else
  echo "compute-sanitizer is not here: its two runs are skipped."
  ((skipped += 2))
fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
