// SPDX-License-Identifier: Apache-2.0

// Converts a message to JSON, in one form for users and scripts. Keys are the field names in the
// .proto. Numbers that are 0 and empty texts are included.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace lodestar::wire {

// Returns one line without a newline. Errors: Internal, with the message's type.
absl::StatusOr<std::string> MessageJson(const google::protobuf::Message& message);
// Returns one line with a newline.
absl::StatusOr<std::string> MessageJsonLine(const google::protobuf::Message& message);

}  // namespace lodestar::wire
