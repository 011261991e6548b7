#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# A server and two honest workers under attack: tests/hostile/run.sh [--tls] [--seconds=N] [flags of hostile.py]
# The programs are built first, unless --binaries=FOLDER has them. BAZEL may name another bazel command.
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh
. deploy/script_help.sh
answer_help_with tests/hostile/hostile.py "$@"

describe_run tests/hostile/run.sh "$@"
if [[ "$*" == *--binaries* ]]; then
  exec python3 -B tests/hostile/hostile.py "$@"
fi
binaries="$(mktemp -d)"
trap 'rm -rf "$binaries"' EXIT
link_programs "$binaries"
python3 -B tests/hostile/hostile.py --binaries="$binaries" "$@"
