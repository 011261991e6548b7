#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Times training steps of PyTorch programs as workers beside DistributedDataParallel over gloo, and what the C API moves
# beside gpu_worker, on this machine: tests/bench/pytorch.sh [flags of pytorch/step_time.py]
# BAZEL may name another bazel command.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh
. deploy/script_help.sh
answer_help_with tests/bench/pytorch/step_time.py "$@"

python="$(tests/python_with_torch.sh)"
server="$(built_binary //server:ps_server)"
worker="$(built_binary //worker:gpu_worker)"
psctl="$(built_binary //deploy/psctl)"
library="$(built_binary //worker/capi:liblodestar_worker.so)"
describe_run tests/bench/pytorch.sh "$@"
"$python" -B tests/bench/pytorch/step_time.py "$server" "$library" "$@"
echo
python3 -B tests/bench/pytorch/transfer_rate.py "$server" "$worker" "$psctl" "$library"
