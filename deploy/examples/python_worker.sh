#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Two workers in plain Python train a model that only python_worker.py defines: the servers get its tensors from there.
#
#   deploy/examples/python_worker.sh [--rounds=N] [--out=DIR]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../local_cluster.sh
source "$(dirname "$(readlink -f "$0")")/../local_cluster.sh"

rounds=200 out='' programs=''
read_options "rounds out programs" "$@"
find_programs "$programs"
enter_out_folder ""

say "Stubs from proto/*.proto"
mkdir stubs
stubs=(protoc --proto_path="$root" --python_out=stubs --grpc_out=stubs
  --plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin
  proto/model.proto proto/job.proto proto/cluster_service.proto proto/parameter_service.proto)
show "${stubs[@]}"
run "${stubs[@]}"

start_server server --model=client --optimizer=sgd --learning_rate=0.5 --batch_size=16 --rounds="$rounds" \
  --min_workers=2 --eval_every=$((rounds / 4)) --metrics_out=metrics.jsonl
for name in a b; do
  worker=("$root/deploy/examples/python_worker.py" --coordinator="$address" --name="$name")
  show "${worker[@]}"
  # Debian's python3-grpcio belongs to this interpreter.
  start "$name" env PYTHONPATH=stubs PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "${worker[@]}"
  worker_pids+=("$pid")
done
follow b
await_workers
ask export --out=model.safetensors
stop_job
say "Share of held-out points classified correctly: $(last_value heldout_accuracy metrics.jsonl). Everything is in $out"
