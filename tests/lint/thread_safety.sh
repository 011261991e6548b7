#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Refuses sources whose locks clang's analysis (-Wthread-safety) finds not taken. It looks at each file that has ABSL_GUARDED_BY or
# another annotation of a lock. The tree must have been built.
#   tests/lint/thread_safety.sh
# Exit code 77: there is no clang++.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.."

compiler="$(command -v clang++-14 clang++ | head -n 1)" || true
if [[ -z "$compiler" ]]; then
  echo "Nothing was tested: there is no clang++"
  exit 77
fi
readonly headers=bazel-bin/third_party/grpc_headers.h
[[ -f "$headers" ]] || {
  echo "There is no $headers: build first, with bazel build //server:ps_server //worker:gpu_worker"
  exit 1
}
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Names of Debian's spdlog, as its pkg-config file has them.
compile=("$compiler" -std=c++20 -DSPDLOG_SHARED_LIB -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL -iquote . -iquote bazel-bin
  -Wthread-safety -Werror=thread-safety)
# Compiled once: most of the time goes to what a source includes.
"${compile[@]}" -x c++-header "$headers" -o "$work/headers.pch"

# A header is looked at in its source, or alone if it has none.
grep -rlE --include='*.h' --include='*.cc' 'ABSL_(PT_)?GUARDED_BY|ABSL_(EXCLUSIVE|SHARED)_LOCKS_REQUIRED|ABSL_LOCKS_EXCLUDED' --exclude-dir='.?*' . |
  while read -r path; do
    if [[ -f "${path%.h}.cc" ]]; then echo "${path%.h}.cc"; else echo "$path"; fi
  done | sort -u >"$work/sources"
[[ -s "$work/sources" ]] || {
  echo "No source has an annotation of a lock"
  exit 1
}
xargs -P "$(nproc)" -I{} "${compile[@]}" -include-pch "$work/headers.pch" -include {} -fsyntax-only -x c++ /dev/null <"$work/sources"
