// How large a registration will be once it is parsed, told from its bytes: a message of 4 MiB may
// hold a million tensors, each of which takes many times its two bytes. Pure.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace lodestar::wire {

// The number of tensors in the wire form of a RegisterRequest. Reads no further than the one that
// exceeds `most`, and keeps nothing. Errors: DataLoss (no protobuf).
absl::StatusOr<int64_t> CountTensors(google::protobuf::io::ZeroCopyInputStream* bytes,
                                     int64_t most);

}  // namespace lodestar::wire
