#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Runs a job through deploy/slurm/lodestar.sbatch under a real Slurm on this machine: it is told that its time is over, is queued
# again and comes to its end. Programs must have been built.
#   tests/slurm/run.sh
# Exit code 77: there is no Slurm, or this is not root (Debian: slurmctld slurmd slurm-client munge).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.."

for program in slurmctld slurmd sbatch munged; do
  command -v "$program" >/dev/null || {
    echo "Nothing was tested: there is no $program"
    exit 77
  }
done
[[ "$(id -u)" == 0 ]] || {
  echo "Nothing was tested: Slurm's daemons are started as root here"
  exit 77
}
PYTHONPATH=tests/process exec /usr/bin/python3 -B tests/slurm/slurm_job_test.py \
  bazel-bin/server/ps_server bazel-bin/worker/gpu_worker bazel-bin/deploy/psctl/psctl
