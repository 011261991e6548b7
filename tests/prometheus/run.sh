#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Has Prometheus read a real job: its rules, the text of /metrics, and a scrape. Programs must have been built.
#   tests/prometheus/run.sh
# Exit code 77: there is no Prometheus (Debian: prometheus).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.."

for program in prometheus promtool; do
  command -v "$program" >/dev/null || {
    echo "Nothing was tested: there is no $program"
    exit 77
  }
done
promtool check rules deploy/prometheus/lodestar.rules.yml
PYTHONPATH=tests/process exec /usr/bin/python3 -B tests/prometheus/scrape_test.py \
  bazel-bin/server/ps_server bazel-bin/worker/gpu_worker bazel-bin/deploy/psctl/psctl
