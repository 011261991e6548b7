#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Whether the simulator finds what is wrong: tests/simulation/planted_faults.sh [SEEDS [FAULT...]]
# Builds it with each of the faults in tests/simulation/faults (FAULT: names without .patch; default:
# all), in a copy of this checkout, and runs seeds (1000 unless said otherwise) until one shows a
# violation. Prints a table.
# Exit code 0 only if every fault is found, and nothing without one.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
if [[ "${1:-}" == -* ]]; then take_no_arguments "$@"; fi
readonly seeds="${1:-1000}"
shift $(($# > 0))

cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$work" || exit 1
cd "$work" || exit 1

build() {
  bazel build --noshow_progress --ui_event_filters=-info //tests/simulation:simulate >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
  }
}

build
bazel-bin/tests/simulation/simulate --seeds="$seeds" --failures=1 >"$work/log" || {
  echo "Without any fault:"
  cat "$work/log"
  exit 1
}
faults=(tests/simulation/faults/*.patch)
if (($# > 0)); then
  faults=("${@/#/tests/simulation/faults/}")
  faults=("${faults[@]/%/.patch}")
fi
all_found=true
printf '%-24s %-12s %s\n' "fault" "first seed" "violation"
for patch in "${faults[@]}"; do
  patch --quiet -p1 <"$patch" || exit 1
  build
  bazel-bin/tests/simulation/simulate --seeds="$seeds" --failures=1 >"$work/log"
  found="$(sed -n 's/^seed \([0-9]*\): \(.*\)/\1\t\2/p' "$work/log" | head -n 1)"
  [[ -n "$found" ]] || all_found=false
  printf '%-24s %-12s %s\n' "$(basename "$patch" .patch)" "${found%%$'\t'*}" "${found#*$'\t'}"
  patch --quiet -R -p1 <"$patch" || exit 1
done
bazel shutdown
$all_found
