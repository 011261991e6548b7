#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Records what compatibility_test reads: tests/compatibility/record.sh PS_SERVER GPU_WORKER PSCTL FOLDER
# A small job is killed between two checkpoints. FOLDER gets its checkpoints, its journal and
# weights.safetensors: what servers that have gone on from the journal export.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
answer_help "$@"
if (($# != 4)); then
  show_usage >&2
  exit 2
fi
readonly ps_server="$1" gpu_worker="$2" psctl="$3" out="$4"

# The records name the folder: the test gives it the same name.
readonly run=/tmp/lodestar-recorded
rm -rf "$run"
mkdir -p "$run"
trap 'kill -9 $(jobs -p) 2>/dev/null; rm -rf "$run"' EXIT
echo 'name: "recorded" gpt { num_layers: 1 num_heads: 1 width: 4 context: 4 vocabulary: 256 }' >"$run/model.textproto"
for i in {1..4000}; do echo "round $i, version $((i * 7)), bucket $((i % 5))"; done >"$run/corpus.txt"

readonly address=127.0.0.1:53917
serve() {
  "$ps_server" --listen="$address" --model="$run/model.textproto" --rounds=1000000 --batch_size=16384 \
    --eval_samples=8 --optimizer=momentum --clip_norm=0.5 --push_encoding=bf16 --pull_encoding=int8 \
    --seed=7 --checkpoint_dir="$run/checkpoints" --checkpoint_every=4 --checkpoint_interval=0 --checkpoint_keep=2 \
    --durability=journal >>"$run/server.log" 2>&1 &
  server=$!
}
serve
"$gpu_worker" --coordinator="$address" --name=a --data="$run/corpus.txt" --device=cpu --threads=1 \
  >"$run/worker.log" 2>&1 &
worker=$!
until [[ -d "$run/checkpoints/round-00000004" ]]; do sleep 0.02; done
sleep 0.3 # for some rounds after it
kill -9 "$server" "$worker"
wait "$server" "$worker" || true

mkdir -p "$out"
cp -r "$run/checkpoints" "$out"
find "$out" \( -name LOCK -o -name '*.tmp' \) -exec rm -rf {} +
serve
until "$psctl" export --server="$address" --out="$out/weights.safetensors" --force; do sleep 0.1; done
du -sh "$out"
