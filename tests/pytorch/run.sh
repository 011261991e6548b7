#!/bin/bash
# Compares PyTorch programs that are workers with plain PyTorch on the same batches, and with gpu_worker; runs the examples.
# Programs must have been built.
#   tests/pytorch/run.sh
# Exit code 77: PyTorch cannot be had (tests/python_with_torch.sh), and why.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1

python="$(tests/python_with_torch.sh)" || exit
bin=bazel-bin
outcome=0
for test in pytorch_test fsdp_test mixed_fleet_test examples_test; do
  "$python" -B "tests/pytorch/$test.py" "$bin/server/ps_server" "$bin/worker/gpu_worker" \
    "$bin/deploy/psctl/psctl" "$bin/worker/capi/liblodestar_worker.so" || outcome=1
done
exit "$outcome"
