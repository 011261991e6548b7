#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Each optimizer's update on a server beside the machine's streaming bandwidth:
# tests/bench/apply.sh [flags of apply/apply.cc]
# BAZEL may name another bazel command.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh
. deploy/script_help.sh
answer_help "$@"

binary="$(built_binary //tests/bench/apply:apply)"
describe_run tests/bench/apply.sh "$@"
"$binary" "$@"
