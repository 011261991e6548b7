#!/bin/bash
# Real servers and workers under random faults: tests/chaos/run.sh SEED [flags of chaos.py]
# Or what is done once, step by step: tests/chaos/run.sh checks [PartitionCheck|ReadOnlyDiskCheck|ClockCheck]
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
else
  python3 -B tests/chaos/chaos.py --binaries="$binaries" "$@"
fi
