#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Runs clang-tidy 14 with .clang-tidy over the C++ sources that differ from a commit, or over those that are named. The tree must
# have been built. All sources take half an hour on two processors, so that this is no part of tests/run.sh.
#   tests/lint/tidy.sh [COMMIT]         what differs from COMMIT (default: HEAD), and what is not committed
#   tests/lint/tidy.sh --all            every source
#   tests/lint/tidy.sh PATH.cc...       these
# Exit code 77: there is no clang-tidy 14.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
answer_help "$@"
cd "$(dirname "$(readlink -f "$0")")/../.."

program="$(command -v clang-tidy-14 clang-tidy | head -n 1)" || true
if [[ -z "$program" ]] || ! "$program" --version | grep -q 'version 14\.'; then
  echo "Nothing was tested: there is no clang-tidy 14"
  exit 77
fi
if [[ "${1:-}" == --all ]]; then
  mapfile -t sources < <(git ls-files -- '*.cc')
elif [[ "${1:-}" == *.cc ]]; then
  sources=("$@")
else
  mapfile -t sources < <(
    git diff --name-only --diff-filter=d "${1:-HEAD}" -- '*.cc'
    git ls-files --others --exclude-standard -- '*.cc'
  )
fi
# CUDA sources are nvcc's.
mapfile -t sources < <(printf '%s\n' "${sources[@]}" | grep -v -e '\.cu\.cc$' -e '^$' | sort -u)
if [[ ${#sources[@]} == 0 ]]; then
  echo "No C++ source differs from ${1:-HEAD}"
  exit 0
fi
printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -I{} "$program" --quiet {} -- -std=c++20 \
  -DSPDLOG_SHARED_LIB -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL -iquote . -iquote bazel-bin 2>&1 |
  { grep -v 'warnings\{0,1\} generated' || true; }
