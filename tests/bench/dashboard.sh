#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# The dashboard's updates with many workers and a long history, in a headless Chromium (Debian: chromium
# chromium-driver python3-selenium): tests/bench/dashboard.sh
set -euo pipefail

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh
. deploy/script_help.sh
take_no_arguments "$@"

describe_run tests/bench/dashboard.sh
/usr/bin/python3 -B tests/bench/dashboard/dashboard.py --page=common/http/dashboard.html
