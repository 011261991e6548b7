#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Workers, servers and links: tests/bench/scaling.sh steps|bytes|encoded|links|utilisation|auto|forecast DATA VENV [flags of scaling/scaling.py]
#   steps: step times of 1, 2 and 4 workers with 1 and 2 servers beside PyTorch DistributedDataParallel
#   bytes: what a worker sends and receives per step, beside a ring all-reduce; needs root
#   encoded: what a worker sends and receives per round in each wire encoding, beside the formats; needs root
#   links: time to a loss over rate-limited and long links between network namespaces; needs root
#   utilisation: how much of the time workers compute that exchange 124 million parameters over such links; needs root
#   auto: what --mode=auto chooses for such links, and how much of the time workers compute then; needs root
#   forecast: what psctl plan says of a round over such links, and what it takes then; needs root. With --paced=SECONDS
#     workers compute nothing and a step takes that time: for a machine that is busy with other work
# DATA is a text file. VENV is a folder with PyTorch, as made by tests/bench/step.sh; "none" leaves out
# what needs it. BAZEL may name another bazel command.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
answer_help_with "$(dirname "$(readlink -f "$0")")/scaling/scaling.py" "$@"

if (($# < 3)) || [[ ! "$1" =~ ^(steps|bytes|encoded|links|utilisation|auto|forecast)$ ]]; then
  show_usage >&2
  exit 2
fi
readonly command="tests/bench/scaling.sh $*"
readonly part="$1" data="$(readlink -f "$2")"
python=""
if [[ "$3" != none ]]; then
  readonly venv="$(readlink -f "$3")"
  python="$venv/bin/python"
  # The wheels of the package index want some CUDA libraries even to be imported.
  LD_LIBRARY_PATH="$(find "$venv"/lib/python3*/site-packages/nvidia -name '*.so*' -printf '%h\n' \
    2>/dev/null | sort -u | tr '\n' ':' || true)/usr/local/cuda/lib64"
  export LD_LIBRARY_PATH
fi
shift 3

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh

server="$(built_binary //server:ps_server)"
worker_target=//worker:gpu_worker
[[ "$part" =~ ^(utilisation|auto)$ || " $*" == *" --paced"* ]] && worker_target=//tests/bench/scaling:paced_worker
worker="$(built_binary "$worker_target")"
links="$(built_binary //tests/bench/scaling:virtual_links)"
psctl=""
[[ "$part" == forecast ]] && psctl="$(built_binary //deploy/psctl:psctl)"
# shellcheck disable=SC2086  # words
describe_run $command
python3 -B tests/bench/scaling/scaling.py --part="$part" --ps_server="$server" --gpu_worker="$worker" \
  --virtual_links="$links" --psctl="$psctl" --data="$data" --python="$python" "$@"
