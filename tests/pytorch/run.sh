#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Compares PyTorch programs that are workers with plain PyTorch on the same batches, and with gpu_worker; runs the examples,
# and the model of the GPU benchmark in PyTorch and in train_step.
# Programs must have been built.
#   tests/pytorch/run.sh [--all]
# --all: also all that can happen to the ranks of one worker, which takes two minutes more.
# Exit code 77: PyTorch cannot be had (tests/python_with_torch.sh), and why.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
of_ranks=(FsdpTest.test_sync_with_evaluations FsdpTest.test_metrics_that_a_round_has_no_room_for_are_left_out_with_one_warning
          FsdpTest.test_local_sgd FsdpTest.test_an_error_in_one_rank_ends_both)
if [[ "${1:-}" == --all ]]; then
  of_ranks=()
  shift
fi
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1

python="$(tests/python_with_torch.sh)" || exit
logs="$(mktemp -d)"
trap 'rm -rf "$logs"' EXIT

run_test() {  # NAME [TEST...]
  "$python" -B "tests/pytorch/$1.py" bazel-bin/server/ps_server bazel-bin/worker/gpu_worker \
    bazel-bin/deploy/psctl/psctl bazel-bin/worker/capi/liblodestar_worker.so "${@:2}" >"$logs/$1" 2>&1 ||
    mv "$logs/$1" "$logs/$1.failed"
}
# They mostly wait for each other.
(run_test pytorch_test; run_test data_loader_test; run_test loops_test; run_test trainers_test; run_test schedules_test; run_test fsdp_test "${of_ranks[@]}") &
(run_test changes_test; run_test clipping_test; run_test saving_test; run_test optimizer_state_test; run_test accelerate_test; run_test arguments_test; run_test unusual_models_test; run_test step_weights_test; run_test own_data_test; run_test mixed_fleet_test; run_test examples_test; run_test yardstick_test) &
wait
[[ -z "$(compgen -G "$logs/*.failed")" ]] && exit
tail -n 40 "$logs"/*.failed
exit 1
