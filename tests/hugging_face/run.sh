#!/bin/bash
# Compares exports, imports and tokens with Hugging Face's transformers; programs must have been built.
#   tests/hugging_face/run.sh [--prepare]
# --prepare only installs PyTorch and transformers, which come from the package registry once, into
# ${XDG_CACHE_HOME:-~/.cache}/lodestar. Exit code 77: they cannot be had, and why.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
only_prepare=0
if [[ "${1:-}" == --prepare ]]; then
  only_prepare=1
  shift
fi
take_no_arguments "$@"

readonly install_seconds=300
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1
cache="${XDG_CACHE_HOME:-$HOME/.cache}/lodestar"

skip() {
  echo "The tests against transformers are skipped: $*"
  exit 77
}

# By what is in it, so that no other version is taken for it.
version="$(python3 -c 'import sys; print(*sys.version_info[:2], sep=".")')" || skip "there is no python3"
wanted="$( (echo "$version" && cat tests/hugging_face/requirements.txt) | sha256sum | cut -c1-12)"
environment="$cache/python-$wanted"
python="$environment/bin/python"

install() {
  local unfinished
  mkdir -p "$cache" && unfinished="$(mktemp -d "$cache/python-XXXXXX.tmp")" || return 1
  python3 -m venv "$unfinished" &&
    timeout "$install_seconds" "$unfinished/bin/python" -m pip install --quiet --no-deps \
      --disable-pip-version-check --requirement tests/hugging_face/requirements.txt &&
    "$unfinished/bin/python" -c 'import torch, transformers' &&
    mv --no-target-directory "$unfinished" "$environment" 2>/dev/null && return
  rm -rf "$unfinished"
  [[ -x "$python" ]]  # another run was faster
}

# The second of two at a time finds what the first has made.
mkdir -p "$cache" && exec {lock}>"$cache/python.lock" && flock "$lock"
if [[ ! -x "$python" ]]; then
  log="$(install 2>&1)" || skip "PyTorch and transformers cannot be installed: $(tail -n 3 <<<"$log")"
fi
exec {lock}>&-
((only_prepare)) && exit 0

bin=bazel-bin
exec "$python" -B tests/hugging_face/hugging_face_test.py "$bin/server/ps_server" \
  "$bin/worker/gpu_worker" "$bin/deploy/psctl/psctl" "$bin/tests/hugging_face/model_probe"
