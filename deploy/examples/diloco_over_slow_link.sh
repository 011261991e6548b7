#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# DiLoCo over a slow link: workers take many steps on their own and exchange rarely (--mode=local_sgd
# --outer_optimizer=nesterov), and send 8 bits per number. For comparison, `sync` then trains over the same link.
#
#   deploy/examples/diloco_over_slow_link.sh [--data=PATH] [--model=PRESET|FILE] [--rounds=N] [--local_steps=H]
#                                            [--megabits=N] [--out=DIR]
#
#   --rounds=N    rounds of DiLoCo, of H steps each, and rounds of sync, of one step each
#   --megabits=N  rate of the link in Mbit/s in each direction, shared by the two workers
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../local_cluster.sh
source "$(dirname "$(readlink -f "$0")")/../local_cluster.sh"

data='' model=gpt-nano rounds=5 local_steps=50 megabits=50 out='' programs=''
read_options "data model rounds local_steps megabits out programs" "$@"
find_programs "$programs"
enter_out_folder "data model"
[[ -n "$data" ]] || data="$(default_text)"

# train NAME FLAGS: two workers that reach the server through a slow link only.
train() {
  local name="$1" link
  rm -f link.port
  start "$name-link" "$root/deploy/examples/slow_link.py" --megabits="$megabits" --port_file=link.port \
    --to_port_file="$name-server.port"
  link="$pid"
  until [[ -s link.port ]]; do
    kill -0 "$link" || fail "the link did not start: $(<"$name-link.log")"
    sleep 0.05
  done
  start_server "$name-server" --advertise="127.0.0.1:$(<link.port)" --shared_memory=false --model="$model" \
    --min_workers=2 --eval_samples=500 --metrics_out="$name.jsonl" "${@:2}"
  address="127.0.0.1:$(<link.port)"
  start_worker "$name-a" --data="$data" --threads=1
  start_worker "$name-b" --data="$data" --threads=1
  await_workers
  stop_job
  kill "$link"
  wait "$link"
}

say "DiLoCo: $rounds rounds of $local_steps steps, over $megabits Mbit/s"
train diloco --mode=local_sgd --outer_optimizer=nesterov --local_steps="$local_steps" --push_encoding=int8 \
  --rounds="$rounds" --learning_rate=3e-3
say "sync: $rounds rounds of one step over the same link"
train sync --rounds="$rounds" --learning_rate=3e-3

for name in diloco sync; do
  echo "$name: $(last_value samples "$name.jsonl") samples in $(last_value seconds "$name.jsonl") s," \
    "$(<"$name-link.log"), held-out $(heldout_bits "$name.jsonl") bits per byte"
done
say "Everything is in $out"
