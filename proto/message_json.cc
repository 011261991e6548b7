// SPDX-License-Identifier: Apache-2.0

#include "proto/message_json.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

namespace lodestar::wire {

absl::StatusOr<std::string> MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto written = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (written.ok()) return text;
  return absl::InternalError(
      absl::StrCat("a message of type ", message.GetTypeName(),
                   " cannot be written as JSON: ", std::string(written.message())));
}

absl::StatusOr<std::string> MessageJsonLine(const google::protobuf::Message& message) {
  absl::StatusOr<std::string> text = MessageJson(message);
  if (text.ok()) *text += '\n';
  return text;
}

}  // namespace lodestar::wire
