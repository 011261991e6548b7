#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Where the time of one round goes, from the traces of a worker and the server:
# tests/bench/profile.sh [flags of profile/profile.py]
# BAZEL may name another bazel command.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
. deploy/script_help.sh
answer_help_with tests/bench/profile/profile.py "$@"

# shellcheck disable=SC2086  # BAZEL may carry options
${BAZEL:-bazel} build //server:ps_server //worker:gpu_worker
# shellcheck disable=SC2086
readonly bin_dir="$(${BAZEL:-bazel} info bazel-bin 2>/dev/null)"
echo "Commit: $(git describe --always --dirty), date: $(date -u +%F)"
echo "Command: tests/bench/profile.sh $*"
exec python3 -B tests/bench/profile/profile.py --bin="$bin_dir" "$@"
