# SPDX-License-Identifier: Apache-2.0

# Selects the tests and kernels that compute-sanitizer checks; run.sh sources it.
# shellcheck shell=bash

# Patterns of --gtest_filter. They select the conformance tests with --fusion=never, in fp32 and bf16. With other values
# cuBLASLt would do the work of some of our kernels.
sanitized=('*/DeviceConformanceTest.*/*Never')
# These tests are left out, as cuBLASLt computes the products.
unsanitized=('*.Multiplies*')

# Options that select the kernels of our namespace by a part of their mangled names. Tests also run kernels of cuBLASLt, and
# racecheck takes some of their reads for a race.
# shellcheck disable=SC2034
readonly sanitizer_options=(--kernel-name kns=8lodestar4cuda)

# sanitizer_filter PROGRAM: prints the filter. If a pattern matches no test of PROGRAM, names it on stderr and returns 1.
sanitizer_filter() {
  local pattern code=0 IFS=:
  for pattern in "${sanitized[@]}" "${unsanitized[@]}"; do
    grep --quiet '^  ' <<<"$("$1" --gtest_list_tests --gtest_filter="$pattern")" && continue
    echo "sanitizer_filter.sh: no test of $1 is called $pattern: it would be left out unnoticed; see --gtest_list_tests" >&2
    code=1
  done
  echo "${sanitized[*]}-${unsanitized[*]}"
  return $code
}
