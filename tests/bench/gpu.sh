#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# GPU benchmarks, a Markdown table per section: tests/bench/gpu.sh [--section=NAME] [--out=FOLDER] [flags of gpu/gpu_table.py]
# A section takes at most ten minutes. If a call may not take as long as all sections, give one section per call.
# In a package (deploy/package.sh) nothing is built. PYTHON names the Python that has PyTorch, the yardstick; the default is
# python3. docs/reference/gpu_tables.md explains the columns. Exit code 77 means that there is no usable card.
set -euo pipefail

root="$(readlink -f "$(dirname "$(readlink -f "$0")")/../..")"
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$root/deploy/script_help.sh"
answer_help_with "$root/tests/bench/gpu/gpu_table.py" "$@"
cd "$root"

if ! command -v nvidia-smi >/dev/null; then
  echo "Nothing was measured: nvidia-smi is not on the PATH, so there is no usable card."
  exit 77
elif ! cards="$(nvidia-smi --list-gpus 2>&1)"; then
  echo "Nothing was measured: there is no usable card; nvidia-smi --list-gpus says: $cards"
  exit 77
fi
if [[ -x bin/operations ]]; then
  bin="$root/bin"
else
  staging="$(mktemp -d)"
  trap 'rm -rf "$staging"' EXIT
  deploy/package.sh --folder="$staging/lodestar"
  bin="$staging/lodestar/bin"
fi
python="${PYTHON:-python3}"
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "$python has no PyTorch: there is no yardstick in this run." >&2
  python=''
fi
python3 -B tests/bench/gpu/gpu_table.py --bin="$bin" --python="$python" "$@"
