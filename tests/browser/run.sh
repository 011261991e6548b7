#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Opens the dashboard of a real job in a headless Chromium. Programs must have been built.
#   tests/browser/run.sh [FOLDER]
# FOLDER: screenshots of three widths and both colour schemes go there. Exit code 77: there is no Chromium, or
# no Selenium (Debian: chromium chromium-driver python3-selenium).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
answer_help "$@"
screenshots="${1:+$(realpath -m "$1")}"
cd "$(dirname "$(readlink -f "$0")")/../.."

for program in chromium chromedriver; do
  command -v "$program" >/dev/null || {
    echo "Nothing was tested: there is no $program"
    exit 77
  }
done
/usr/bin/python3 -c "import selenium" 2>/dev/null || {
  echo "Nothing was tested: there is no python3-selenium"
  exit 77
}
SCREENSHOTS="$screenshots" PYTHONPATH=tests/process exec /usr/bin/python3 -B tests/browser/dashboard_browser_test.py \
  bazel-bin/server/ps_server bazel-bin/worker/gpu_worker bazel-bin/deploy/psctl/psctl
