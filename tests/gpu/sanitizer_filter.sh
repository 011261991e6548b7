# Which operations, and which of their kernels, compute-sanitizer looks at: sourced by what runs it.
# shellcheck shell=bash

# Patterns of --gtest_filter. All of the conformance suite that runs kernels of ours, each once; unfused, as fused what they do
# is cuBLASLt's.
sanitized=('*/DeviceConformanceTest.*/*Never')
# Products are cuBLASLt's, too.
unsanitized=('*.Multiplies*')

# Only kernels of our namespace, by a part of their mangled names: some of cuBLASLt's read what racecheck takes for a race, and
# operations whose products are cuBLASLt's have kernels of ours beside them.
# shellcheck disable=SC2034
readonly sanitizer_options=(--kernel-name kns=8lodestar4cuda)

# sanitizer_filter PROGRAM: prints the filter; 1, naming them, where patterns match no test of PROGRAM.
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
