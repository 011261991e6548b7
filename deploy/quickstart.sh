#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# From a fresh clone to a trained model: installs what is missing, builds, trains a byte-level GPT on one server and two
# workers, and shows what it learned. Ctrl-C ends everything that it has started.
#
#   deploy/quickstart.sh [--data=PATH] [--mode=sync|async|local_sgd] [--rounds=N] [--out=DIR] [--keep]
#
#   --data=PATH   text to learn: a file or a folder tree (default: the manual of Perl's modules, 3 MB of English that
#                 this machine has)
#   --mode=MODE   how workers exchange their updates (default: sync); see docs/explanation/modes.md
#   --rounds=N    number of rounds (default: as many as take about 2 minutes on 2 cores)
#   --out=DIR     folder for logs, checkpoints, model and loss curve; must be new or empty (default: a new folder in the
#                 current one, lodestar-quickstart, or lodestar-quickstart-2 and so on)
#   --keep        leave the server running for psctl until Ctrl-C
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=local_cluster.sh
source "$(dirname "$(readlink -f "$0")")/local_cluster.sh"

readonly num_workers=2 batch_size=6 local_steps=20
readonly context=64  # tokens; of examples/small_gpt.textproto
readonly steps_per_worker=8000

data='' mode=sync rounds='' out='' keep='' programs=''
read_options "data mode rounds out keep programs" "$@"
[[ -z "$data" || -e "$data" ]] || fail "--data=$data does not exist; give a file or folder with text"
# By default the same number of samples in every mode.
mode_flags=() learning_rate=6e-3
case "$mode" in
  sync) : "${rounds:=$steps_per_worker}" ;;
  async)
    : "${rounds:=$((steps_per_worker * num_workers))}"
    # Steps by old gradients at the rate of sync end at 3.6 bits per byte instead of 2.5.
    mode_flags=(--staleness_scaling=inverse) learning_rate=4e-3
    ;;
  local_sgd)
    : "${rounds:=$((steps_per_worker / local_steps))}"
    mode_flags=(--local_steps="$local_steps" --outer_optimizer=average)
    ;;
  *) fail "--mode=$mode is unknown; allowed: sync, async, local_sgd" ;;
esac
[[ "$rounds" =~ ^[1-9][0-9]{0,8}$ ]] || fail "--rounds=$rounds is not a number from 1 to 999999999"

find_programs "$programs"
enter_out_folder "data"
[[ -n "$data" ]] || data="$(default_text)"

threads=$(($(nproc) / num_workers))
((threads >= 1)) || threads=1
((threads <= 8)) || threads=8  # a model this small gains nothing from more

say "Training on $data"
started=$SECONDS
start_server server --model="$root/deploy/examples/small_gpt.textproto" --mode="$mode" "${mode_flags[@]}" \
  --rounds="$rounds" --min_workers="$num_workers" --batch_size="$batch_size" --learning_rate="$learning_rate" \
  --min_learning_rate=3e-4 --lr_schedule=cosine --warmup_rounds=$((rounds / 20)) --beta2=0.99 --weight_decay=0.1 \
  --clip_norm=1 --eval_every=$((rounds > 4 ? rounds / 4 : 1)) --eval_samples=2000 --checkpoint_dir=checkpoints \
  --metrics_out=metrics.jsonl
for ((i = 1; i <= num_workers; ++i)); do
  start_worker "worker-$i" --data="$data" --data_format=text --threads="$threads"
done
follow "worker-$num_workers"
await_workers
train_seconds=$((SECONDS - started))

run "$psctl" export --server="$address" --out=model.safetensors >psctl.log 2>&1 || fail "psctl export failed: $(<psctl.log)"
run "$root/deploy/loss_curve.py" --bits metrics.jsonl loss.svg

say "Done after $train_seconds s of training, at $(awk -v samples="$(last_value samples metrics.jsonl)" \
  -v seconds="$(last_value seconds metrics.jsonl)" -v context="$context" \
  'BEGIN { printf "%.0f", samples * context / seconds }') tokens/s. Held-out text, in bits per byte:"
run "$root/deploy/yardsticks.py" "$data" "$(heldout_bits metrics.jsonl)"
say "What is in $out"
echo "  checkpoint   $(printf '%s\n' checkpoints/round-* | sort | tail -n 1)"
echo "  model        model.safetensors"
echo "  loss curve   loss.svg"
say "300 bytes by the model:"
run "$psctl" generate --model=model.safetensors --prompt='The ' --bytes=300 --temperature=0.5 --seed=1
echo

say "Next"
# If psctl was built in bazel-bin, that shorter path is shown.
shown_psctl="$root/bazel-bin/deploy/psctl/psctl"
[[ "$shown_psctl" -ef "$psctl" ]] || shown_psctl="$psctl"
echo "  the losses again       $shown_psctl history $out/checkpoints"
echo "  a text of your own     $root/deploy/quickstart.sh --data=PATH"
echo "  a job that continues   $shown_psctl launch --data=PATH -- --model=gpt-nano --rounds=20000 --checkpoint_dir=run1"
echo "  several machines       $root/docs/howto/several_machines.md"

if [[ -n "$keep" ]]; then
  say "The server runs at $address until Ctrl-C. Try for example: psctl --server=$address status"
  wait "${server_pids[0]}"
else
  stop_job >>psctl.log
fi
