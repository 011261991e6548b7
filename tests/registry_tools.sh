#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Prints the folder of the programs that some tests need and Debian does not have: its bin is put before PATH, whether it is there or not.
#   tests/registry_tools.sh             the folder
#   tests/registry_tools.sh --install   gets them, once: a Python with TensorBoard and kubernetes_validate from the package registry, and
#                                       kubectl from dl.k8s.io where this machine has none or an older one
# They lie in ${XDG_CACHE_HOME:-~/.cache}/lodestar (200 MB). Exit code 1: they cannot be had, and why.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../deploy/script_help.sh"
installs=false
if [[ "${1:-}" == --install ]]; then
  installs=true
  shift
fi
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

readonly kubectl=https://dl.k8s.io/release/v1.32.4/bin/linux/amd64/kubectl
requirements=tests/registry_tools.txt
cache="${XDG_CACHE_HOME:-$HOME/.cache}/lodestar"
# By what is in it, so that no other version is taken for it.
version="$(python3 -c 'import sys; print(*sys.version_info[:2], sep=".")')" || exit 1
folder="$cache/tools-$( (echo "$version $kubectl" && cat "$requirements") | sha256sum | cut -c1-12)"
if ! $installs; then
  echo "$folder"
  exit
fi

# kubectl that knows what deploy/kubernetes is written in; Debian 12 has one that does not.
works() { command -v "$1" >/dev/null && "$1" kustomize deploy/kubernetes/base >/dev/null 2>&1; }

# kubectl, checked by the sum that lies beside it.
fetch_kubectl() {
  python3 -B - "$kubectl" "$1" <<'FETCH' && chmod 755 "$1"
import hashlib, sys, urllib.request
url, path = sys.argv[1:]
try:
  program = urllib.request.urlopen(url, timeout=60).read()
  wanted = urllib.request.urlopen(url + ".sha256", timeout=60).read().decode().strip()
except OSError as error:
  sys.exit(f"{url}: {error}")
if hashlib.sha256(program).hexdigest() != wanted:
  sys.exit(f"{url} is not what its sha256 says")
with open(path, "wb") as file:
  file.write(program)
FETCH
}

make() {
  python3 -m venv "$folder" &&
    "$folder/bin/python" -m pip install --quiet --no-deps --disable-pip-version-check --requirement "$requirements" &&
    "$folder/bin/python" -c 'import tensorboard, kubernetes_validate, yaml'
}

mkdir -p "$cache" || exit 1
exec {lock}>"$cache/tools.lock" || exit 1
flock "$lock"
if ! "$folder/bin/python" -c 'import tensorboard, kubernetes_validate, yaml' 2>/dev/null; then
  make || {
    rm -rf "$folder"
    echo "registry_tools.sh: TensorBoard and kubernetes_validate cannot be had" >&2
    exit 1
  }
fi
works kubectl || works "$folder/bin/kubectl" || { fetch_kubectl "$folder/bin/kubectl" && works "$folder/bin/kubectl"; } || {
  rm -f "$folder/bin/kubectl"
  echo "registry_tools.sh: kubectl cannot be had from $kubectl" >&2
  exit 1
}
