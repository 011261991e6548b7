#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Asynchronous training with two workers, one of which has a quarter of its CPU time. The fast worker does not wait for the slow
# one. The slow worker's gradients are old when they arrive, so the server makes shorter steps (--staleness_scaling=inverse).
#
#   deploy/examples/async_with_slow_worker.sh [--data=PATH] [--model=PRESET|FILE] [--rounds=N] [--out=DIR]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../local_cluster.sh
source "$(dirname "$(readlink -f "$0")")/../local_cluster.sh"

data='' model=gpt-nano rounds=400 out='' programs=''
read_options "data model rounds out programs" "$@"
find_programs "$programs"
enter_out_folder "data model"
[[ -n "$data" ]] || data="$(default_text)"

# Lets process $1 run for 0.05 s of every 0.2 s.
slow_down() {
  while kill -STOP "$1"; do
    sleep 0.15
    kill -CONT "$1"
    sleep 0.05
  done
}

start_server server --mode=async --staleness_scaling=inverse --model="$model" --rounds="$rounds" --min_workers=2 \
  --learning_rate=2e-3 --eval_samples=500 --metrics_out=metrics.jsonl
start_worker slow --data="$data" --threads=1
start slow_down slow_down "$pid"
start_worker fast --data="$data" --threads=1
follow fast
await_workers

show "$psctl" status --server="$address" --json
run "$psctl" status --server="$address" --json >status.json
say "Rounds of each worker, and staleness of the gradients (number of updates by other workers in between):"
python3 - <<'PY'
import json

status = json.load(open("status.json", encoding="utf-8"))
for worker in status["workers"]:
    print(f"  {worker['name']}: {worker['rounds_completed']} rounds")
counts = [int(count) for count in status["shards"][0]["staleness_histogram"]]
total = max(sum(counts), 1)
print("  staleness " + ", ".join(f"{age}: {100 * n / total:.0f} %" for age, n in enumerate(counts) if n))
PY
stop_job
say "Everything is in $out"
