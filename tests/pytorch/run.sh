#!/bin/bash
# Compares PyTorch programs that are workers with plain PyTorch on the same batches; programs must have been built.
#   tests/pytorch/run.sh
# Exit code 77: PyTorch cannot be had (tests/python_with_torch.sh), and why.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1

python="$(tests/python_with_torch.sh)" || exit
bin=bazel-bin
exec "$python" -B tests/pytorch/pytorch_test.py "$bin/server/ps_server" "$bin/worker/gpu_worker" \
  "$bin/deploy/psctl/psctl" "$bin/worker/capi/liblodestar_worker.so"
