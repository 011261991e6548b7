// SPDX-License-Identifier: Apache-2.0

// Stands in for cuBLASLt and cuDNN in tests that only ask for their versions.
#include <cstddef>
#include <cstdlib>

// NOLINTBEGIN: the names are NVIDIA's.
extern "C" {
size_t cublasLtGetVersion() { return 130002; }
size_t cudnnGetVersion() {
  const char* const told = std::getenv("LODESTAR_STAND_IN_CUDNN_VERSION");
  return told == nullptr ? 91900 : std::strtoul(told, nullptr, 10);
}
}
// NOLINTEND
