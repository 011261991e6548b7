#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Trains a small GPT on text, with bytes as tokens, from random weights. Then generates text with it.
#
#   deploy/examples/text_from_scratch.sh [--data=PATH] [--model=PRESET|FILE] [--rounds=N] [--out=DIR]
#
#   --data=PATH   a file or a folder tree of text (default: the text of the quick start)
#   --model=...   a preset of ps_server, or a file such as small_gpt.textproto beside this script
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../local_cluster.sh
source "$(dirname "$(readlink -f "$0")")/../local_cluster.sh"

data='' model=gpt-nano rounds=300 out='' programs=''
read_options "data model rounds out programs" "$@"
find_programs "$programs"
enter_out_folder "data model"
[[ -n "$data" ]] || data="$(default_text)"

start_server server --model="$model" --rounds="$rounds" --min_workers=2 --learning_rate=3e-3 --lr_schedule=cosine \
  --warmup_rounds=$((rounds / 20)) --clip_norm=1 --eval_every=$((rounds / 3)) --eval_samples=500 \
  --checkpoint_dir=checkpoints --metrics_out=metrics.jsonl
start_worker a --data="$data" --threads=1
start_worker b --data="$data" --threads=1
follow b
await_workers

ask export --out=model.safetensors
say "100 bytes by the model:"
run "$psctl" generate --model=model.safetensors --prompt="The " --bytes=100
stop_job
say "Held-out loss: $(heldout_bits metrics.jsonl) bits per byte. Everything is in $out"
