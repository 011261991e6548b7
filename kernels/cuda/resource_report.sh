#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# What every kernel of the plugin takes of a card, for sm_75, sm_80 and sm_90a: registers and stack
# of a thread, bytes that spill from registers to memory, static shared memory and barriers. Needs
# nvcc. A spill in a hot kernel costs more than a block less per multiprocessor: see README.md.
# resources.txt is what it prints with nvcc 13.0.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."

bazel build --noshow_progress --ui_event_filters=-info --output_groups=+resources \
  //kernels/cuda:lodestar_cuda >&2
reports="$(bazel info bazel-bin)/kernels/cuda"
shopt -s nullglob
files=("$reports"/*_nvcc/*.resources)
if ((${#files[@]} == 0)); then
  echo "No reports: there is no nvcc on this machine." >&2
  exit 1
fi

# Lines "file what ptxas said", with the kernels' names in C++.
grep -H "" "${files[@]}" | sed 's#^[^:]*/\([^/]*\)\.cu\.cc\.resources:#\1 #' | c++filt | awk '
  /Compiling entry function/ {
    # file ptxas info : Compiling entry function '"'"'name'"'"' for '"'"'sm_80'"'"'
    split($0, quoted, "'"'"'")
    kernel = quoted[2]
    gsub(/lodestar::cuda::|\(anonymous namespace\)::|void /, "", kernel)
    if (!sub(/>\(.*$/, ">", kernel)) sub(/\(.*$/, "", kernel)
    architecture = quoted[4]
  }
  /bytes stack frame/ {
    stack = $2
    spills = $6 + $10
  }
  # The number before a phrase, 0 where there is none.
  function before(phrase,   line) {
    line = $0
    if (!sub(phrase ".*", "", line)) return 0
    sub(/.* /, "", line)
    return line
  }
  /Used [0-9]+ registers/ {
    printf "%-24s %-7s %5d %6d %7d %7d %5d  %s\n", $1, architecture, before(" registers"), stack,
           spills, before(" bytes smem"), before(" barriers"), kernel
  }
' | sort -u -k1,1 -k8 -k2,2 | awk '
  # Lines of one kernel become one, with a number per architecture.
  function flush() {
    if (name == "") return
    printf "%-26s %-12s %-8s %-8s %7d %5d  %s\n", file, registers, stack, spilled, shared, barriers, name
  }
  BEGIN { printf "%-26s %-12s %-8s %-8s %7s %5s  %s\n", "file", "registers", "stack", "spilled", "shared", "barr", "kernel (sm_75/sm_80/sm_90a)" }
  {
    kernel = $0
    for (field = 0; field < 7; ++field) sub(/^[^ ]+ +/, "", kernel)
    if (kernel != name || $1 != file) {
      flush()
      file = $1; name = kernel; registers = $3; stack = $4; spilled = $5; shared = $6; barriers = $7
      next
    }
    registers = registers "/" $3; stack = stack "/" $4; spilled = spilled "/" $5
    if ($6 > shared) shared = $6
  }
  END { flush() }
'
