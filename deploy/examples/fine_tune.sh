#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Trains a model on one text, and then fine-tunes it on another text (--init_from). For comparison, also trains a model
# with random weights on the second text.
#
#   deploy/examples/fine_tune.sh [--data=PATH] [--own_data=PATH] [--model=PRESET|FILE] [--rounds=N] [--out=DIR]
#
#   --data=PATH      the first text (default: the text of the quick start)
#   --own_data=PATH  the second text (default: the licences that Debian installs)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../local_cluster.sh
source "$(dirname "$(readlink -f "$0")")/../local_cluster.sh"

data='' own_data=/usr/share/common-licenses model=gpt-nano rounds=300 out='' programs=''
read_options "data own_data model rounds out programs" "$@"
find_programs "$programs"
enter_out_folder "data own_data model"
[[ -n "$data" ]] || data="$(default_text)"

# train NAME DATA ROUNDS FLAGS: the model is then in NAME.safetensors.
train() {
  start_server "$1-server" --model="$model" --rounds="$3" --eval_samples=500 --metrics_out="$1.jsonl" "${@:4}"
  start_worker "$1-worker" --data="$2" --threads=1
  await_workers
  ask export --out="$1.safetensors"
  stop_job
}

say "Training a first model on $data"
train first "$data" "$rounds" --learning_rate=3e-3

say "Fine-tuning that model on $own_data, with a lower learning rate and a third of the rounds"
train fine_tuned "$own_data" $((rounds / 3)) --init_from=first.safetensors --learning_rate=1e-3

say "Training a model with random weights on $own_data"
train from_scratch "$own_data" $((rounds / 3)) --learning_rate=3e-3

say "Held-out loss on $own_data after $((rounds / 3)) rounds, in bits per byte:"
echo "  from the first model   $(heldout_bits fine_tuned.jsonl)"
echo "  from random weights    $(heldout_bits from_scratch.jsonl)"
say "Everything is in $out"
