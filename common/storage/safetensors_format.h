// SPDX-License-Identifier: Apache-2.0

// Rules that the writer and the reader of safetensors files share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lodestar::storage::safetensors_format {

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // limit of the reference reader
inline constexpr int64_t kLengthBytes = 8;
inline constexpr char kMetadataKey[] = "__metadata__";

struct TensorSize {
  int64_t num_elements = 0;
  int64_t num_bytes = 0;
};

// Returns the size of a tensor. Errors: InvalidArgument (unknown dtype, a dimension below 0, a
// product that overflows, or elements that do not fill whole bytes). The caller adds the tensor's
// name to the error.
absl::StatusOr<TensorSize> SizeOf(const std::string& dtype, const std::vector<int64_t>& shape);

}  // namespace lodestar::storage::safetensors_format
