#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# 2 to 64 light-weight workers against one server: tests/bench/fleet.sh [flags of fleet/fleet.py]
# With --flat: the server's memory over ten thousand rounds. BAZEL may name another bazel command.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh
. deploy/script_help.sh
answer_help_with tests/bench/fleet/fleet.py "$@"

server="$(built_binary //server:ps_server)"
workers="$(built_binary //tests/bench/fleet:fleet_workers)"
probe="$(built_binary //tests/bench/fleet:status_probe)"
describe_run tests/bench/fleet.sh "$@"
python3 -B tests/bench/fleet/fleet.py --ps_server="$server" --fleet_workers="$workers" \
  --status_probe="$probe" "$@"
