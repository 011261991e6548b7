#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Makes tokens of text, writes them into a uint16 .bin file with the header of llm.c, and trains on that file. If you have
# tokens of your own tokenizer, you do not need this script: give their file to gpu_worker --data=FILE.bin, and a model
# file with their vocabulary to ps_server --model.
#
#   deploy/examples/tokens.sh [--data=TEXT] [--vocabulary=N] [--rounds=N] [--out=DIR]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../local_cluster.sh
source "$(dirname "$(readlink -f "$0")")/../local_cluster.sh"

data='' vocabulary=1024 rounds=300 out='' programs=''
read_options "data vocabulary rounds out programs" "$@"
find_programs "$programs"
enter_out_folder "data"
[[ -n "$data" ]] || data="$(default_text)"

bytes_per_token="$(run "$root/deploy/examples/words_to_tokens.py" --vocabulary="$vocabulary" --out=tokens.bin \
  "$data")"
header_bytes=1024
say "$((($(stat --format=%s tokens.bin) - header_bytes) / 2)) tokens of $bytes_per_token bytes each, in tokens.bin"
cat >model.textproto <<MODEL
name: "words" gpt { num_layers: 2 num_heads: 4 width: 64 context: 64 vocabulary: $vocabulary }
MODEL
show cat model.textproto
cat model.textproto

start_server server --model=model.textproto --rounds="$rounds" --learning_rate=3e-3 --eval_samples=500 \
  --metrics_out=metrics.jsonl
start_worker a --data=tokens.bin --threads=1
follow a
await_workers
ask export --out=model.safetensors
stop_job
say "Held-out loss: $(heldout_bits metrics.jsonl "$bytes_per_token") bits per byte. Everything is in $out"
