#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Real servers and workers under random faults: tests/chaos/run.sh SEED [flags of chaos.py]
# Or what is done once, step by step: tests/chaos/run.sh checks [PartitionCheck|ReadOnlyDiskCheck|ClockCheck]
# Or connections of living workers are cut: tests/chaos/run.sh cuts [flags of connection_cuts.py]
# The programs are built first, unless --binaries=FOLDER has them. BAZEL may name another bazel command.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh
. deploy/script_help.sh
answer_help_with tests/chaos/chaos.py "$@"

describe_run tests/chaos/run.sh "$@"
if [[ "$*" == *--binaries* ]]; then
  exec python3 -B tests/chaos/chaos.py "$@"
fi
binaries="$(mktemp -d)"
trap 'rm -rf "$binaries"' EXIT
link_programs "$binaries"
if [[ "${1:-}" == checks ]]; then
  python3 -B tests/chaos/checks.py "$binaries"/{ps_server,gpu_worker,psctl} "${@:2}"
elif [[ "${1:-}" == cuts ]]; then
  python3 -B tests/chaos/connection_cuts.py "$binaries"/{ps_server,gpu_worker,psctl} "${@:2}"
else
  python3 -B tests/chaos/chaos.py --binaries="$binaries" "$@"
fi
