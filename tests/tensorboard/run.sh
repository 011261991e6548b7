#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Has TensorBoard read what ps_server --tensorboard_dir writes of a real job that is killed and goes on. Programs must have been
# built.
#   tests/tensorboard/run.sh
# Exit code 77: $PYTHON (default: python3) has no tensorboard; tests/registry_tools.sh --install gets it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.."

PATH="$(tests/registry_tools.sh)/bin:$PATH"
python="${PYTHON:-python3}"
"$python" -c "import tensorboard" 2>/dev/null || {
  echo "Nothing was tested: $python has no tensorboard (tests/registry_tools.sh --install)"
  exit 77
}
PYTHONPATH=tests/process exec "$python" -B tests/tensorboard/event_files_test.py \
  bazel-bin/server/ps_server bazel-bin/worker/gpu_worker bazel-bin/deploy/psctl/psctl
