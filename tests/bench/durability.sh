#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# What a journal costs: tests/bench/durability.sh DATA FOLDER [flags of durability/durability.py]
# The time of a round with --durability=checkpoint, =journal and a replica, per mode and number of local steps.
# DATA is a text file. FOLDER gets checkpoints and journals: its disk is what is measured.
# BAZEL may name another bazel command.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
answer_help_with "$(dirname "$(readlink -f "$0")")/durability/durability.py" "$@"

if (($# < 2)) || [[ "$1" == -* ]]; then
  show_usage >&2
  exit 2
fi
readonly command="tests/bench/durability.sh $*"
readonly data="$(readlink -f "$1")" disk="$(readlink -m "$2")"
shift 2

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh

server="$(built_binary //server:ps_server)"
worker="$(built_binary //worker:gpu_worker)"
# shellcheck disable=SC2086  # words
describe_run $command
python3 -B tests/bench/durability/durability.py --ps_server="$server" --gpu_worker="$worker" \
  --data="$data" --folder="$disk" "$@"
