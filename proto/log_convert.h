// ReadLog of AdminService <-> common/logging/log_tail.h.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/logging/log_tail.h"
#include "proto/status_service.pb.h"

namespace lodestar::wire {

// What a server answers, and of which log that is.
struct LogPage {
  std::string log_id;
  std::string process;
  LogExcerpt excerpt;
};

v1::ReadLogRequest ToProto(const LogQuery& query, const std::string& log_id);
// `log_id`: of the log that is there. Errors: InvalidArgument.
absl::StatusOr<LogQuery> FromProto(const v1::ReadLogRequest& request, absl::string_view log_id);

v1::ReadLogReply ToProto(const LogPage& page);
// What others have written is made fit for a terminal. Errors: InvalidArgument, for more than a
// server sends.
absl::StatusOr<LogPage> FromProto(const v1::ReadLogReply& reply);

}  // namespace lodestar::wire
