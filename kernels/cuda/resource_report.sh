#!/bin/bash
# What every kernel of the plugin takes of a card, by architecture: registers and stack of a thread,
# bytes that spill from registers to memory, static shared memory and barriers. Needs nvcc. A spill
# in a hot kernel costs more than a block less per multiprocessor: see README.md.
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

cat "${files[@]}" | c++filt | awk '
  /Compiling entry function/ {
    # ... entry function '"'"'name'"'"' for '"'"'sm_80'"'"'
    split($0, quoted, "'"'"'")
    kernel = quoted[2]
    gsub(/lodestar::cuda::|\(anonymous namespace\)::|void /, "", kernel)
    sub(/\(.*\)$/, "", kernel)
    architecture = quoted[4]
  }
  /bytes stack frame/ {
    stack = $1
    spills = $5 + $9
  }
  /Used [0-9]+ registers/ {
    registers = $0; sub(/.*Used /, "", registers); sub(/ registers.*/, "", registers)
    barriers = $0
    if (barriers ~ /used [0-9]+ barriers/) {
      sub(/.*used /, "", barriers); sub(/ barriers.*/, "", barriers)
    } else barriers = 0
    shared = $0
    if (shared ~ /bytes smem/) {
      sub(/ bytes smem.*/, "", shared); sub(/.* /, "", shared)
    } else shared = 0
    printf "%-7s %5d %6d %7d %7d %5d  %s\n", architecture, registers, stack, spills, shared, \
           barriers, kernel
  }
' | sort -u -k7 -k1,1 | {
  printf "%-7s %5s %6s %7s %7s %5s  %s\n" arch regs stack spilled shared barr kernel
  cat
}
