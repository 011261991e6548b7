#!/bin/bash
# From a fresh clone to a trained model: installs what is missing, builds, trains a byte-level GPT
# on one server and two workers, and shows what it learned. Ctrl-C at any time leaves no process.
set -euo pipefail

readonly num_workers=2 batch_size=12 local_steps=20
readonly context=64  # tokens; of the preset gpt-nano
readonly steps_per_worker=2500
readonly max_eval_windows=20000

usage() {
  cat <<'TEXT'
Usage: deploy/quickstart.sh [--data=PATH] [--mode=sync|async|local_sgd] [--rounds=N] [--out=DIR]
                            [--keep]

  --data=PATH   text to learn: a file or a folder tree (default: the C++ standard library headers)
  --mode=MODE   how strictly the workers move together (default: sync)
  --rounds=N    length of the training (default: what takes under 3 minutes on 2 cores)
  --out=DIR     folder for logs, checkpoints, model and loss curve; must be new or empty
                (default: a new folder under ${TMPDIR:-/tmp})
  --keep        leave the server running for psctl until Ctrl-C
TEXT
}

fail() {
  echo "quickstart.sh: $*" >&2
  exit 1
}

say() { echo "==> $*"; }

# --- Processes: every one that is started is in `pids` and ended by `stop_all`. ---

pids=()

stop_all() {
  trap '' INT TERM
  ((${#pids[@]})) || return 0
  kill -TERM "${pids[@]}" 2>/dev/null || true
  for _ in {1..50}; do
    kill -0 "${pids[@]}" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "${pids[@]}" 2>/dev/null || true
  wait "${pids[@]}" 2>/dev/null || true
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a command so that a signal to this script ends it at once.
run() {
  "$@" &
  local pid=$!
  pids+=("$pid")
  local code=0
  wait "$pid" || code=$?
  unset 'pids[-1]'
  return "$code"
}

# --- Arguments ---

data='' mode=sync rounds='' out='' keep=''
for argument in "$@"; do
  case "$argument" in
    --data=*) data="${argument#*=}" ;;
    --mode=*) mode="${argument#*=}" ;;
    --rounds=*) rounds="${argument#*=}" ;;
    --out=*) out="${argument#*=}" ;;
    --keep) keep=yes ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) fail "unknown argument $argument; see --help" ;;
  esac
done
if [[ -n "$data" ]]; then
  [[ -e "$data" ]] || fail "--data=$data: no such file or folder"
  data="$(realpath "$data")"
fi
if [[ -n "$out" ]]; then
  mkdir -p "$out"
  [[ -z "$(ls -A "$out")" ]] || fail "--out=$out is not empty"
  out="$(realpath "$out")"
fi

# By default the same number of samples in every mode.
mode_flags=()
case "$mode" in
  sync) : "${rounds:=$steps_per_worker}" ;;
  async) : "${rounds:=$((steps_per_worker * num_workers))}" ;;
  local_sgd)
    : "${rounds:=$((steps_per_worker / local_steps))}"
    mode_flags=(--local_steps="$local_steps" --outer_optimizer=average)
    ;;
  *) fail "--mode=$mode is not sync, async or local_sgd" ;;
esac
[[ "$rounds" =~ ^[1-9][0-9]{0,8}$ ]] ||
  fail "--rounds=$rounds is not a number from 1 to 999999999"

# --- Build ---

cd "$(dirname "$(readlink -f "$0")")/.."
run deploy/install_deps.sh
say "Building (minutes the first time)"
# --batch: no build server stays behind.
run bazel --batch build --noshow_progress --ui_event_filters=-info \
  //server:ps_server //worker:gpu_worker //deploy/psctl:psctl ||
  fail "the build failed; the errors are above"
bin="$(realpath bazel-bin)"

# --- Data ---

prompt='The '
if [[ -z "$data" ]]; then
  prompt='#include <'
  data="$(printf '%s\n' /usr/include/c++/* | sort -V | tail -n 1)"
  [[ -d "$data" ]] || fail "no C++ headers under /usr/include/c++; name a text with --data=PATH"
fi
[[ -n "$out" ]] || out="$(mktemp -d "${TMPDIR:-/tmp}/lodestar-quickstart.XXXXXX")"
run deploy/heldout_bytes.py "$data" >"$out/heldout.bin"
heldout_bytes=$(stat --format=%s "$out/heldout.bin")
heldout_windows=$(((heldout_bytes - 1) / context))
eval_samples=0 sampled=''
if ((heldout_windows > max_eval_windows)); then
  eval_samples=$max_eval_windows
  sampled=", measured on every $((heldout_windows / max_eval_windows))th window"
fi

# --- Training ---

threads=$(($(nproc) / num_workers))
((threads >= 1)) || threads=1
((threads <= 8)) || threads=8  # a model this small gains nothing from more

say "Training gpt-nano on $data: mode $mode, $num_workers workers with $threads thread(s) each"
started=$SECONDS
"$bin/server/ps_server" --listen=127.0.0.1:0 --port_file="$out/port" \
  --model=gpt-nano --mode="$mode" "${mode_flags[@]}" --rounds="$rounds" \
  --min_workers="$num_workers" --batch_size="$batch_size" --optimizer=adamw \
  --learning_rate=2e-3 --min_learning_rate=1e-4 --lr_schedule=cosine \
  --warmup_rounds=$((rounds / 20)) --beta2=0.99 --weight_decay=0.1 --clip_norm=1 \
  --eval_every=$((rounds > 4 ? rounds / 4 : 1)) --eval_samples="$eval_samples" \
  --checkpoint_dir="$out/checkpoints" --metrics_out="$out/metrics.jsonl" \
  >"$out/server.log" 2>&1 &
server=$!
pids+=("$server")
until [[ -s "$out/port" ]]; do
  kill -0 "$server" 2>/dev/null || fail "the server did not start: $(tail -n 3 "$out/server.log")"
  sleep 0.05
done
address="127.0.0.1:$(<"$out/port")"

trainers=()
for ((i = 1; i <= num_workers; ++i)); do
  "$bin/worker/gpu_worker" --coordinator="$address" --data="$data" --data_format=text \
    --threads="$threads" --name="worker-$i" >"$out/worker-$i.log" 2>&1 &
  trainers+=("$!")
  pids+=("$!")
done
tail --pid="${trainers[0]}" -n +1 -F "$out/worker-1.log" 2>/dev/null &
pids+=("$!")

# The workers end by themselves; the server must not.
running=("${trainers[@]}")
while ((${#running[@]})); do
  code=0
  wait -n -p ended "$server" "${running[@]}" || code=$?
  if ((code != 0)) || [[ "$ended" == "$server" ]]; then
    tail -n 5 "$out"/*.log >&2
    fail "a process ended early (exit code $code); logs are in $out"
  fi
  for i in "${!running[@]}"; do
    [[ "${running[i]}" != "$ended" ]] || unset "running[i]"
  done
done
train_seconds=$((SECONDS - started))

# --- Results ---

psctl=("$bin/deploy/psctl/psctl" --server="$address")
run "${psctl[@]}" export --out="$out/model.safetensors" >"$out/psctl.log" 2>&1 ||
  fail "export failed: $(<"$out/psctl.log")"
run deploy/loss_curve.py --bits "$out/metrics.jsonl" "$out/loss.svg"
checkpoint="$(printf '%s\n' "$out"/checkpoints/round-* | sort | tail -n 1)"
xz_bytes="$(run xz -9e --stdout "$out/heldout.bin" | wc -c)"
rm "$out/heldout.bin"

say "Done after $train_seconds s of training"
python3 - "$out/metrics.jsonl" "$context" "$heldout_bytes" "$xz_bytes" "$sampled" <<'PY'
import json, math, sys

path, context, heldout_bytes, xz_bytes, sampled = sys.argv[1:]
records = [json.loads(line) for line in open(path)]
loss = [r["heldout_loss"] for r in records if r.get("heldout_loss") is not None][-1]
tokens_per_second = records[-1]["samples"] * int(context) / records[-1]["seconds"]
print(f"held-out text        {loss / math.log(2):.3f} bits per byte{sampled}")
print(f"  xz -9e needs       {8 * int(xz_bytes) / int(heldout_bytes):.3f} bits per byte "
      f"for the same {heldout_bytes} bytes")
print(f"throughput           {tokens_per_second:.0f} tokens/s, evaluation included")
PY
echo "checkpoint           $checkpoint"
echo "model                $out/model.safetensors"
echo "loss curve           $out/loss.svg"
say "300 bytes by the model, after '$prompt':"
run "$bin/deploy/psctl/psctl" generate --model="$out/model.safetensors" --prompt="$prompt" \
  --bytes=300 --seed=1
echo

if [[ -n "$keep" ]]; then
  say "The server stays at $address until Ctrl-C, for example: bazel-bin/deploy/psctl/psctl \
--server=$address status"
  wait "$server"
else
  run "${psctl[@]}" stop >>"$out/psctl.log" 2>&1 || fail "stop failed: $(<"$out/psctl.log")"
  wait "$server" || fail "the server ended with an error: $(tail -n 3 "$out/server.log")"
fi
