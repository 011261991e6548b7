#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Tests and times a package on a machine with a card, for the first time: tests/gpu/first_lease.sh [--seconds=N] [flags]
# --help lists steps, flags, files and exit codes.
set -euo pipefail

exec python3 -B "$(dirname "$(readlink -f "$0")")/lease.py" first "$@"
