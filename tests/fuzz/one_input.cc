// SPDX-License-Identifier: Apache-2.0

#include <google/protobuf/stubs/logging.h>

#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Protobuf would print a line for every text that is not UTF-8.
  static const bool silenced = [] {
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  static_cast<void>(silenced);
  if (size == 0) return 0;
  const absl::Span<const lodestar::fuzz::Case> cases = lodestar::fuzz::Cases();
  cases[data[0] % cases.size()].run({reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
