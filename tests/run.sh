#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Installs what is missing, builds everything and runs every test: tests/run.sh
# One target at a time: bazel test //server/sync:all
# Last line: "N passed, N failed, N skipped" (test targets).
# Exit code 0 only if everything was built and nothing failed.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../deploy/script_help.sh"
take_no_arguments "$@"

readonly limit_seconds=2700  # for the build and all tests together; a hang must not look like work
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

deploy/install_deps.sh || {
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}

if ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
  echo "No nvcc on this machine: the CUDA plugin is not built; workers compute on the CPU."
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Beside the build, which waits for processors and not for the network.
tests/python_with_torch.sh >/dev/null 2>&1 &

# Tests and programs by name: //... would also build every library a second time, as a shared one.
bazel query --noshow_progress \
  '(kind(".*_test rule", //...) except attr(tags, "manual", //...)) + kind("cc_binary rule", //...)' \
  >"$work/targets" || exit 1
# Tests of processes mostly wait: one action more than there are processors.
jobs=$(($(nproc) + 1))
timeout --foreground --signal=INT --kill-after=60 "$limit_seconds" \
  bazel test --jobs="$jobs" --local_cpu_resources="$jobs" --nobuild_tests_only --keep_going \
  --build_event_json_file="$work/events.json" --target_pattern_file="$work/targets"
bazel_code=$?
case $bazel_code in
  0) ;;
  3) echo "Some tests failed; their logs are above and under bazel-testlogs/." ;;
  124) echo "Not done after $limit_seconds seconds: stopped." ;;
  *) echo "The build failed (bazel exit code $bazel_code); the errors are above." ;;
esac

# The layers again, this time over the build graph; tests/architecture looks at the sources.
rule_failures=0
must_be_empty() {
  local found
  found="$(bazel query --noshow_progress "$1" 2>"$work/query.log")" || {
    cat "$work/query.log"
    rule_failures=1
    return
  }
  [[ -z "$found" ]] && return
  echo "The dependency rule is broken; bazel query '$1' prints:"
  echo "$found"
  rule_failures=1
}
must_be_empty 'somepath(//kernels/..., //proto/... + //third_party:grpc + //third_party:spdlog)'
must_be_empty 'somepath(//common/..., //proto/... + //kernels/... + //third_party:grpc)'
# The program alone has both: of a site.
must_be_empty 'somepath(//server/... except //server:ps_server, //worker/... + //site/...)'
must_be_empty 'somepath(//worker/..., //server/... + //site/...)'
must_be_empty 'somepath(//... except //tests/..., //tests/...)'
must_be_empty 'attr(testonly, 0, rdeps(//..., //kernels/cuda/emulator/...))'

# Tests that want what a machine may not have: exit code 77 says so, and why. All at once.
run_other() {  # NAME COMMAND...
  local log outcome
  log="$(mktemp "$work/other-XXXXXX")"
  "${@:2}" >"$log" 2>&1
  case $? in
    0) outcome=passed ;;
    77) outcome=skipped ;;
    *) outcome=failed ;;
  esac
  [[ $outcome == passed ]] || tail -n 50 "$log"
  echo "$outcome $1" >>"$work/other_results"
}
wheel="bazel-bin/deploy/wheel/lodestar-$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' common/process/version.h)-py3-none-linux_x86_64.whl"
for program in cuda_device_test cuda_model_test; do
  run_other "//tests/gpu:$program" env \
    LD_LIBRARY_PATH="$PWD/bazel-bin/kernels/cuda:${LD_LIBRARY_PATH:-}" "bazel-bin/tests/gpu/$program" &
done
for script in tests/lint/{format,thread_safety}.sh \
  tests/{browser,hugging_face,kubernetes,prometheus,pytorch,slurm,systemd,tensorboard}/run.sh; do
  run_other "$script" "$script" &
done
for version in 3.11 3.13; do
  run_other "the wheel in CPython $version" python3 -B tests/process/wheel_install.py "$wheel" "$version" &
done
wait

python3 -B tests/count_results.py "$work/events.json" "$bazel_code" "$rule_failures" "$work/other_results"
count_code=$?
((bazel_code == 0 && rule_failures == 0 && count_code == 0))
