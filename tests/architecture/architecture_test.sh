#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# The script itself is a link into the checkout, so its real path leads to all sources.
set -euo pipefail
exec python3 -B "$(dirname "$(readlink -f "$0")")/architecture_test.py"
