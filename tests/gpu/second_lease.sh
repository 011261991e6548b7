#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Tests on a machine with a card what first_lease.sh leaves out: tests/gpu/second_lease.sh [--seconds=N] [flags]
# --help lists steps, flags, files and exit codes.
set -euo pipefail

exec python3 -B "$(dirname "$(readlink -f "$0")")/lease.py" second "$@"
