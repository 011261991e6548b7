// SPDX-License-Identifier: Apache-2.0

// Converts AdminService.ReadLog to and from common/logging/log_tail.h.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/logging/log_tail.h"
#include "proto/status_service.pb.h"

namespace lodestar::wire {

// A server's answer, and the id of the log that its lines come from.
struct LogPage {
  std::string log_id;
  std::string process;
  logging::LogExcerpt excerpt;
};

v1::ReadLogRequest ToProto(const logging::LogQuery& query, const std::string& log_id);
// Converts a request. `log_id` is the id of the log on this server. Errors: InvalidArgument.
absl::StatusOr<logging::LogQuery> FromProto(const v1::ReadLogRequest& request,
                                            absl::string_view log_id);

v1::ReadLogReply ToProto(const LogPage& page);
// Converts a reply, and makes its texts safe to show. Errors: InvalidArgument if the reply has more
// lines or longer texts than a server sends.
absl::StatusOr<LogPage> FromProto(const v1::ReadLogReply& reply);

}  // namespace lodestar::wire
