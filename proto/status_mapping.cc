#include "proto/status_mapping.h"

#include <string>

namespace lodestar {
namespace {

constexpr size_t kMaxMessageBytes = 2048;

// absl took gRPC's numbers; the assertions below keep it so.
constexpr absl::StatusCode ToAbslCode(grpc::StatusCode code) {
  return static_cast<absl::StatusCode>(code);
}
static_assert(ToAbslCode(grpc::StatusCode::CANCELLED) == absl::StatusCode::kCancelled);
static_assert(ToAbslCode(grpc::StatusCode::INVALID_ARGUMENT) == absl::StatusCode::kInvalidArgument);
static_assert(ToAbslCode(grpc::StatusCode::ABORTED) == absl::StatusCode::kAborted);
static_assert(ToAbslCode(grpc::StatusCode::UNAVAILABLE) == absl::StatusCode::kUnavailable);
static_assert(ToAbslCode(grpc::StatusCode::UNAUTHENTICATED) == absl::StatusCode::kUnauthenticated);

bool IsKnown(int code) {
  return code >= static_cast<int>(absl::StatusCode::kOk) &&
         code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  if (message.size() > kMaxMessageBytes) {
    message.resize(kMaxMessageBytes - 3);
    message += "...";
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = static_cast<int>(status.error_code());
  if (!IsKnown(code)) {
    return absl::UnknownError("gRPC status code " + std::to_string(code) + ": " +
                              status.error_message());
  }
  return absl::Status(ToAbslCode(status.error_code()), status.error_message());
}

bool IsRetryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace lodestar
