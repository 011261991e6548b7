#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# No kernel spills registers to memory, on any architecture, by what ptxas reports of the plugin's.
# Where there is no nvcc there are no reports, and nothing is tested.
set -euo pipefail
shopt -s globstar nullglob
reports=(kernels/cuda/**/*.resources)
if ((${#reports[@]} == 0)); then
  if [[ -x /usr/local/cuda/bin/nvcc ]]; then
    echo "There is nvcc, and no report of it."
    exit 1
  fi
  echo "No reports: there is no nvcc on this machine."
  exit 0
fi
kernels=$(grep -h -c "Compiling entry function" "${reports[@]}" | awk '{ sum += $1 } END { print sum }')
# "    8 bytes stack frame, 20 bytes spill stores, 12 bytes spill loads", some lines behind the name.
spills=$(awk '
  /Compiling entry function/ { split($0, quoted, "\x27"); kernel = quoted[2] " for " quoted[4] }
  /bytes spill stores/ && $5 + $9 > 0 { print kernel ":" $0 }
' "${reports[@]}" | c++filt)
if [[ -n $spills ]]; then
  echo "These kernels spill registers to memory; see resource_report.sh:"
  echo "$spills"
  exit 1
fi
((kernels > 0)) || { echo "The reports name no kernel."; exit 1; }
echo "None of $kernels kernels spills."
