#!/bin/bash
# GPU benchmarks, a Markdown table per section: tests/bench/gpu.sh [--section=NAME] [--out=FOLDER] [flags of gpu/gpu_table.py]
# A section takes ten minutes at most: where calls are shorter than all of them, one section per call.
# In a package (deploy/package.sh) nothing is built. PYTHON may name a Python that has PyTorch, the yardstick.
set -euo pipefail

root="$(readlink -f "$(dirname "$(readlink -f "$0")")/../..")"
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$root/deploy/script_help.sh"
answer_help_with "$root/tests/bench/gpu/gpu_table.py" "$@"
cd "$root"

if ! nvidia-smi --list-gpus >/dev/null 2>&1; then
  echo "There is no usable GPU here (nvidia-smi lists none): nothing was measured."
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
