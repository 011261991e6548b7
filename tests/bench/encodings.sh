#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Each wire encoding on one thread beside memcpy of the same vectors:
# tests/bench/encodings.sh [flags of encodings/encodings.cc]
# BAZEL may name another bazel command.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh
. deploy/script_help.sh
answer_help "$@"

binary="$(built_binary //tests/bench/encodings:encodings)"
describe_run tests/bench/encodings.sh "$@"
"$binary" "$@"
