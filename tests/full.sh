#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Everything: installs what the tests need (deploy/install_deps.sh --for_all_tests, tests/registry_tools.sh --install), then tests/run.sh,
# and what takes too long for each change, some two hours. Before a release.
#   tests/full.sh [--install_only]
# Last line: "N passed, N failed, N skipped" (steps). Exit code 0 only if nothing failed.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../deploy/script_help.sh"
install_only=false
if [[ "${1:-}" == --install_only ]]; then
  install_only=true
  shift
fi
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

passed=0 failed=0 skipped=0
step() {
  echo "== $*"
  "$@"
  local code=$?
  case $code in
    0) ((++passed)) ;;
    77) ((++skipped)) ;;
    *)
      ((++failed))
      echo "FAILED with $code: $*"
      ;;
  esac
}
step deploy/install_deps.sh --for_all_tests
step tests/registry_tools.sh --install
if ! $install_only; then
  step tests/run.sh
  step tests/debian/run.sh
  step tests/simulation/planted_faults.sh
  step bazel-bin/tests/simulation/simulate --minutes=20 --jobs="$(nproc)"
  step tests/fuzz/soak.sh --minutes=5
  step tests/chaos/run.sh 1
  step tests/hostile/run.sh --tls
fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
