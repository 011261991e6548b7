#!/bin/bash
# What metrics, history, TensorBoard's files and an open dashboard cost a job: tests/bench/observed.sh DATA [flags of observed/observed.py]
# DATA is a text file. BAZEL may name another bazel command.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
answer_help_with "$(dirname "$(readlink -f "$0")")/observed/observed.py" "$@"

if (($# < 1)) || [[ "$1" == -* ]]; then
  show_usage >&2
  exit 2
fi
readonly command="tests/bench/observed.sh $*"
data="$(readlink -f "$1")"
readonly data
shift

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh

server="$(built_binary //server:ps_server)"
worker="$(built_binary //worker:gpu_worker)"
psctl="$(built_binary //deploy/psctl:psctl)"
# shellcheck disable=SC2086  # words
describe_run $command
python3 -B tests/bench/observed/observed.py --ps_server="$server" --gpu_worker="$worker" --psctl="$psctl" --data="$data" "$@"
