#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# What a job gets done whose workers are killed all the time: tests/bench/goodput.sh DATA [flags of goodput/goodput.py]
# Four workers, one of them at half the speed; one is killed (SIGKILL) every minute, and started again at once. Workers
# compute nothing, and each sample takes a given time. DATA is a text file. BAZEL may name another bazel command.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
# shellcheck source-path=SCRIPTDIR source=describe_run.sh
source "$(dirname "$(readlink -f "$0")")/describe_run.sh"
begin_with_data goodput/goodput.py "$@"
shift

server="$(built_binary //server:ps_server)"
worker="$(built_binary //tests/bench/scaling:paced_worker)"
psctl="$(built_binary //deploy/psctl:psctl)"
# shellcheck disable=SC2086  # words
describe_run $command
python3 -B tests/bench/goodput/goodput.py --ps_server="$server" --paced_worker="$worker" --psctl="$psctl" \
  --data="$data" "$@"
