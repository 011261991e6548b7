#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Moving tensors between workers and a server, beside raw TCP and one big protobuf message:
# tests/bench/data_path.sh [flags of data_path/data_path.py]
# BAZEL may name another bazel command.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh
. deploy/script_help.sh
answer_help_with tests/bench/data_path/data_path.py "$@"

peer="$(built_binary //tests/bench/data_path:peer)"
describe_run tests/bench/data_path.sh "$@"
python3 -B tests/bench/data_path/data_path.py --peer="$peer" "$@"
