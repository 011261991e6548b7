#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Makes a tarball that runs on any x86-64 Linux with glibc 2.36 or later: binaries, the CUDA plugin, GPU tests and
# benchmarks, their libraries (all but glibc's and CUDA's), licences, and a list of all parts (SPDX).
#   deploy/package.sh [--out=FILE.tar.xz]   (default: lodestar-VERSION-linux-x86_64.tar.xz in the root of the repository)
#   deploy/package.sh --folder=DIR          writes the same files into a new folder instead of a tarball
set -euo pipefail

fail() {
  echo "package.sh: $*" >&2
  exit 1
}

out='' folder=''
for argument in "$@"; do
  case "$argument" in
    --out=?*) out="$(realpath -m "${argument#*=}")" ;;
    --folder=?*) folder="$(realpath -m "${argument#*=}")" ;;
    -h | --help)
      sed -n '4,7s/^# \?//p' "$0"
      exit 0
      ;;
    *) fail "unknown argument $argument; see --help" ;;
  esac
done
[[ -z "$out" || -z "$folder" ]] || fail "--out and --folder exclude each other; give one of the two"

cd "$(dirname "$(readlink -f "$0")")/.."
version="$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' common/process/version.h)"
name="lodestar-$version-linux-x86_64"
[[ -n "$out" || -n "$folder" ]] || out="$PWD/$name.tar.xz"
[[ -z "$folder" || ! -e "$folder" ]] || fail "--folder=$folder exists already; remove it or give another folder"

deploy/install_deps.sh
targets=(//server:ps_server //worker:gpu_worker //deploy/psctl:psctl)
if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then
  targets+=(//kernels/cuda:liblodestar_cuda.so //tests/gpu:cuda_device_test //tests/gpu:cuda_model_test
    //tests/bench/gpu:operations //tests/bench/step:train_step)
else
  echo "This machine has no nvcc, so the package has no CUDA plugin and its workers compute on the CPU."
fi
# A new commit alone links nothing again; another label does, so that --version names this commit.
commit="$(common/workspace_status.sh | awk '$1 == "BUILD_SCM_REVISION" { print $2 }')"
label="$(common/workspace_status.sh | awk '{ print $2 }' | paste -s -d-)"
# shellcheck disable=SC2086  # BAZEL may carry options
${BAZEL:-bazel} build --noshow_progress --ui_event_filters=-info --embed_label="$label" "${targets[@]}"
# shellcheck disable=SC2086
built="$(${BAZEL:-bazel} info bazel-bin 2>/dev/null)"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
stage="$work/$name"
mkdir -p "$stage/bin"

for target in "${targets[@]}"; do
  path="${target#//}"
  install -m 755 "$built/${path/://}" "$stage/bin/"
done

deploy/relocate.sh "$stage" >"$work/parts"
# The programs have the headers alone of this library.
install -m 644 /usr/share/doc/nlohmann-json3-dev/copyright "$stage/licences/nlohmann-json3-dev"
dpkg-query --show --showformat='${Package} ${Version} ${Architecture} compiled\n' nlohmann-json3-dev >>"$work/parts"
deploy/bill_of_materials.py --version="$version" --commit="${commit:-unknown}" <"$work/parts" \
  >"$stage/bill_of_materials.spdx.json"
for program in ps_server gpu_worker psctl; do
  "$stage/bin/$program" --version | grep --quiet "^commit: ${commit:-unknown}" ||
    fail "$program --version must name the commit ${commit:-unknown}, but it says: $("$stage/bin/$program" --version)"
done

for file in README.md LICENSE CHANGELOG.md SECURITY.md \
  CONTRIBUTING.md worker/*/README.md deploy/README.md deploy/kubernetes/*/*.yaml deploy/kubernetes/*/*/*.yaml \
  deploy/{Dockerfile,Dockerfile.cuda,loss_curve.py,yardsticks.py,quickstart.sh,local_cluster.sh,script_help.sh} \
  docs/*.md docs/*/*.{md,png} deploy/grafana/*.json deploy/prometheus/*.yml deploy/slurm/*.sbatch deploy/systemd/*.service deploy/completions/*.bash deploy/examples/*.{sh,py,textproto} \
  tests/bench/results/*.md proto/README.md proto/*.proto \
  tests/gpu/{run,first_lease,second_lease,sanitizer_filter}.sh tests/gpu/{lease,three_modes_test}.py tests/process/cluster_processes.py \
  tests/bench/gpu.sh tests/bench/gpu/gpu_table.py tests/bench/gpu/torch_gpt2.py; do
  install -D -m "$(stat --format=%a "$file")" "$file" "$stage/$file"
done

if [[ -n "$folder" ]]; then
  mv "$stage" "$folder"
  echo "$folder"
else
  mkdir -p "$(dirname "$out")"
  tar --create --sort=name --owner=0 --group=0 --numeric-owner --directory="$work" "$name" | xz -T0 -6 >"$out"
  echo "$out: $(du -h "$out" | cut -f1)"
fi
