// SPDX-License-Identifier: Apache-2.0

// Counts the tensors in the bytes of a registration before it is parsed. A message of 4 MiB may
// hold a million tensors of two bytes, and each takes many times as much memory when parsed. Pure.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace lodestar::wire {

// Returns the number of tensors in the bytes of a RegisterRequest. Stops counting when the number
// exceeds `most`. Does not keep the bytes in memory. Errors: DataLoss (not protobuf).
absl::StatusOr<int64_t> CountTensors(google::protobuf::io::ZeroCopyInputStream* bytes,
                                     int64_t most);

}  // namespace lodestar::wire
