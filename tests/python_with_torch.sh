#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Prints the path of a Python that has PyTorch, Hugging Face's transformers, and what people use beside them, for tests.
#   tests/python_with_torch.sh
# They come from the package registry (700 MB) once, into ${XDG_CACHE_HOME:-~/.cache}/lodestar. Exit code 77: they
# cannot be had, and why.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../deploy/script_help.sh"
take_no_arguments "$@"

readonly install_seconds=300
# Imported once, so that they are compiled: the rest never is.
readonly used='jax, peft, pytorch_lightning, torch.distributed.fsdp, torch._dynamo, transformers.models.gpt2.modeling_gpt2, transformers.trainer'
requirements="$(dirname "$(readlink -f "$0")")/python_with_torch.txt"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/lodestar"

cannot() {
  echo "PyTorch and transformers cannot be had: $*" >&2
  exit 77
}

# By what is in it, so that no other version is taken for it.
version="$(python3 -c 'import sys; print(*sys.version_info[:2], sep=".")')" || cannot "there is no python3"
wanted="$( (echo "$version" && cat "$requirements") | sha256sum | cut -c1-12)"
environment="$cache/python-$wanted"
python="$environment/bin/python"

install() {
  local unfinished
  unfinished="$(mktemp -d "$cache/python-XXXXXX.tmp")" || return 1
  python3 -m venv "$unfinished" &&
    timeout "$install_seconds" "$unfinished/bin/python" -m pip install --quiet --no-deps --no-compile \
      --disable-pip-version-check --requirement "$requirements" &&
    env -u PYTHONDONTWRITEBYTECODE "$unfinished/bin/python" -c "import $used" &&
    mv --no-target-directory "$unfinished" "$environment" && return
  rm -rf "$unfinished"
  return 1
}

# If two run at a time, the second finds what the first has made.
mkdir -p "$cache" || cannot "$cache cannot be made"
exec {lock}>"$cache/python.lock" || cannot "$cache cannot be written"
flock "$lock"
if [[ ! -x "$python" ]]; then
  log="$(install 2>&1)" || cannot "$(tail -n 3 <<<"$log")"
fi
echo "$python"
