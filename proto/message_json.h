// A message as JSON, the same wherever people and scripts read it: fields by their names in the
// .proto, numbers that are 0 and texts that are empty too.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace lodestar::wire {

// Returns one line, without its end. Errors: Internal, with the message's type.
absl::StatusOr<std::string> MessageJson(const google::protobuf::Message& message);
// Returns the line with its end.
absl::StatusOr<std::string> MessageJsonLine(const google::protobuf::Message& message);

}  // namespace lodestar::wire
