#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Installs packages that the build, the tests and the quick start need, if they are missing. Prints
# nothing if all are there.
#   deploy/install_deps.sh [--for_all_tests]
# --for_all_tests: also installs a browser, Prometheus, Slurm, ... (1.4 GB). tests/full.sh needs them, and tests/run.sh
# skips tests without them. Needs Debian 12, or a system with the same package names, and root or sudo.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=script_help.sh
source "$(dirname "$(readlink -f "$0")")/script_help.sh"
for_all_tests=false
if [[ "${1:-}" == --for_all_tests ]]; then
  for_all_tests=true
  shift
fi
take_no_arguments "$@"

packages=(
  # compiler and build
  bazel-bootstrap g++ git
  # libraries
  libabsl-dev libcpp-httplib-dev libgrpc++-dev libprotobuf-dev libspdlog-dev libsqlite3-dev libssl-dev
  nlohmann-json3-dev prometheus-cpp-dev zlib1g-dev
  # protocol buffers
  protobuf-compiler protobuf-compiler-grpc
  # tests and benchmarks
  etcd-server libbenchmark-dev libgmock-dev libgtest-dev python3 python3-grpcio
  python3-protobuf
  # packages for other machines
  patchelf xz-utils
  # quick start: the text that it learns
  perl
)
if $for_all_tests; then
  packages+=(
    # tests/browser
    chromium chromium-driver python3-selenium
    # tests/prometheus: promtool, too
    prometheus
    # tests/slurm
    munge slurm-client slurmctld slurmd
    # tests/systemd: unshare, nsenter, pgrep and ip, too
    iproute2 procps systemd util-linux
    # tests/debian: the manual pages are read
    dpkg man-db
    # tests/fuzz: libFuzzer
    clang libclang-rt-14-dev
    # tests/hugging_face, pytorch, tensorboard, kubernetes: what comes from the package registry
    python3-venv
  )
fi

fail() {
  echo "install_deps.sh: $*" >&2
  exit 1
}

is_installed() {
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  fail "this machine has no apt; install the contents of these Debian 12 packages in another way: ${packages[*]}"
fi

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    fail "packages are missing, and this user is not root and has no sudo; as root, run: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
# Debconf must not wait for answers; sudo drops the environment, so env carries the setting.
as_root+=(env DEBIAN_FRONTEND=noninteractive)

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
run_quietly() {
  "${as_root[@]}" "$@" >"$log" 2>&1 && return
  cat "$log" >&2
  fail "this command failed: $*"
}

echo "Installing ${#missing[@]} packages: ${missing[*]}"
run_quietly apt-get update -q
run_quietly apt-get install -q -y --no-install-recommends "${missing[@]}"
# Debian runs daemons of these from then on; tests start their own.
for package in etcd-server munge prometheus slurmctld slurmd; do
  if [[ " ${missing[*]} " == *" $package "* ]]; then
    "${as_root[@]}" systemctl disable --now "${package%-server}" >/dev/null 2>&1 || true
  fi
done
for package in "${missing[@]}"; do
  is_installed "$package" || fail "apt-get reported success, but $package is not installed; try apt-get install $package and read its output"
done
