#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Tests that the filter selects our kernels: sanitizer_filter_test.sh CUDA_DEVICE_TEST. It needs no card.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=sanitizer_filter.sh
source "$(dirname "$0")/sanitizer_filter.sh"
program="$1"

fail() {
  echo "FAILED: $*"
  exit 1
}

filter="$(sanitizer_filter "$program")" || fail "a pattern matches nothing"
chosen="$("$program" --gtest_list_tests --gtest_filter="$filter")"
for name in AttendsToThePast DropsTheSameProbabilities CrossEntropyWith EmbedsAndScatters NormBackward LinearBackward \
  ConvolvesAndPools AdamWMatches EncodesToTheSameBytes; do
  grep --quiet "  $name.*/Fp32Never" <<<"$chosen" || fail "$name in fp32 is not looked at: $chosen"
  grep --quiet "  $name.*/Bf16Never" <<<"$chosen" || fail "$name in bf16 is not looked at: $chosen"
done
! grep Multiplies <<<"$chosen" || fail "products are cuBLASLt's"

# Every kernel must be in the namespace that the option names by its mangled form.
option="${sanitizer_options[*]}"
[[ "$option" == "--kernel-name kns="* ]] || fail "$option is not what compute-sanitizer takes"
mangled="_ZN${option#*=}"
namespaces=0
for source in kernels/cuda/*.cu.cc; do
  grep --quiet '__global__' "$source" || continue
  space="$(sed -n 's/^namespace \([a-z:]\+\) {$/\1/p' "$source" | head -1)"
  expected="_ZN"
  for part in ${space//::/ }; do expected+="${#part}$part"; done
  [[ "$expected" == "$mangled" ]] || fail "$source has kernels in '$space', which the filter leaves out"
  ((++namespaces))
done
((namespaces > 0)) || fail "no source of a kernel was found in $PWD"

for gone in '*Softmax*' '*/DeviceConformanceTest.*/*Sometimes'; do
  sanitized+=("$gone")
  ! message="$(sanitizer_filter "$program" 2>&1 >/dev/null)" || fail "$gone matches nothing, and nobody says so"
  grep --quiet --fixed-strings -- "$gone" <<<"$message" || fail "$gone is not named: $message"
  unset 'sanitized[-1]'
done
