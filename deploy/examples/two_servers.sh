#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Divides the parameters among two servers, and then continues on one: a checkpoint fits any number of servers.
#
#   deploy/examples/two_servers.sh [--data=PATH] [--model=PRESET|FILE] [--rounds=N] [--out=DIR]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../local_cluster.sh
source "$(dirname "$(readlink -f "$0")")/../local_cluster.sh"

data='' model=gpt-nano rounds=200 out='' programs=''
read_options "data model rounds out programs" "$@"
find_programs "$programs"
enter_out_folder "data model"
[[ -n "$data" ]] || data="$(default_text)"
job=(--model="$model" --learning_rate=3e-3 --min_workers=2 --eval_samples=500 --checkpoint_dir=checkpoints
  --metrics_out=metrics.jsonl)

start_workers() {
  start_worker "$1" --data="$data" --threads=1
  start_worker "$2" --data="$data" --threads=1
  follow "$2"
  await_workers
}

say "Two servers: shard 0 has the settings of the job, shard 1 is told where shard 0 is"
start_server server-0 --shard=0/2 --rounds="$rounds" "${job[@]}"
coordinator="$address"
start_server server-1 --shard=1/2 --coordinator="$coordinator"
address="$coordinator"
start_workers a b
ask status
stop_job
ls -d checkpoints/*

say "The same job for twice as many rounds, on one server: it resumes from the newest checkpoint"
start_server server --rounds=$((2 * rounds)) "${job[@]}"
start_workers c d
show grep 'resumes from' server.log
grep 'resumes from' server.log
ask status
stop_job
say "Everything is in $out"
