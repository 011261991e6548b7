#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Compares exports, imports and tokens with Hugging Face's transformers; programs must have been built.
#   tests/hugging_face/run.sh
# Exit code 77: transformers cannot be had (tests/python_with_torch.sh), and why.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1

python="$(tests/python_with_torch.sh)" || exit
bin=bazel-bin
exec "$python" -B tests/hugging_face/hugging_face_test.py "$bin/server/ps_server" \
  "$bin/worker/gpu_worker" "$bin/deploy/psctl/psctl" "$bin/tests/hugging_face/model_probe"
