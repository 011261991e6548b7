#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Times one training step on the CPU beside PyTorch: tests/bench/step.sh VENV [flags of step/torch_step.py]
# VENV is a folder for PyTorch; it is made, with the packages PyTorch needs on a CPU, if it is not there.
# BAZEL may name another bazel command.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
answer_help "$@"

if (($# < 1)) || [[ "$1" == -* ]]; then
  show_usage >&2
  exit 2
fi
readonly venv="$(readlink -m "$1")"
shift
readonly python="$venv/bin/python"
cd "$(dirname "$(readlink -f "$0")")/../.."

# The wheels of the package index want some CUDA libraries even to be imported.
set_library_path() {
  local folders
  folders="$(find "$venv"/lib/python3*/site-packages/nvidia -name '*.so*' -printf '%h\n' 2>/dev/null |
    sort -u | tr '\n' ':' || true)"
  export LD_LIBRARY_PATH="$folders/usr/local/cuda/lib64"
}

install_pytorch() {
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-deps torch numpy typing_extensions sympy mpmath networkx \
    jinja2 markupsafe fsspec filelock
  set_library_path
  "$python" -c "import torch" 2>/dev/null && return
  "$python" - <<'PYTHON' | xargs -r "$venv/bin/pip" install --quiet --no-deps nvidia-cufile
import importlib.metadata
import re

for requirement in importlib.metadata.requires("torch"):
    if re.match(r"nvidia-(cusparselt|nccl|nvshmem)", requirement):
        print(requirement.split(";")[0].strip())
PYTHON
  set_library_path
  "$python" -c "import torch"
}

set_library_path
"$python" -c "import torch" 2>/dev/null || install_pytorch

# shellcheck disable=SC2086  # BAZEL may carry options
${BAZEL:-bazel} build //tests/bench/step:train_step
# shellcheck disable=SC2086
binary="$(${BAZEL:-bazel} info bazel-bin 2>/dev/null)/tests/bench/step/train_step"
echo "Commit: $(git describe --always --dirty), date: $(date -u +%F)"
"$python" -B tests/bench/step/torch_step.py --binary="$binary" "$@"
