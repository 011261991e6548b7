#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# What metrics, history, TensorBoard's files and an open dashboard cost a job: tests/bench/observed.sh DATA [flags of observed/observed.py]
# DATA is a text file. BAZEL may name another bazel command.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
# shellcheck source-path=SCRIPTDIR source=describe_run.sh
source "$(dirname "$(readlink -f "$0")")/describe_run.sh"
begin_with_data observed/observed.py "$@"
shift

server="$(built_binary //server:ps_server)"
worker="$(built_binary //worker:gpu_worker)"
psctl="$(built_binary //deploy/psctl:psctl)"
# shellcheck disable=SC2086  # words
describe_run $command
python3 -B tests/bench/observed/observed.py --ps_server="$server" --gpu_worker="$worker" --psctl="$psctl" --data="$data" "$@"
