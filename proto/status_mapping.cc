// SPDX-License-Identifier: Apache-2.0

#include "proto/status_mapping.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net/host_port.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_hints.h"
#include "proto/error_details.pb.h"

namespace lodestar::wire {
namespace {

constexpr size_t kMaxMessageBytes = 2048;
// Maximum time that a peer's hint may ask a caller to wait before it calls again.
constexpr absl::Duration kLongestRetryAfter = absl::Hours(24);

// absl uses gRPC's numbers. The assertions below make sure of it.
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

// Returns the hints of `status` as serialized details. Empty means that `status` has no hints.
std::string DetailsOf(const absl::Status& status, const std::string& message) {
  v1::ErrorDetails details;
  if (const auto coordinator = CoordinatorOf(status); coordinator.has_value()) {
    details.set_coordinator(*coordinator);
  }
  if (const auto retry_after = RetryAfterOf(status); retry_after.has_value()) {
    details.set_retry_after_ms(absl::ToInt64Milliseconds(*retry_after));
  }
  if (const auto times_renewed = TimesRenewedOf(status); times_renewed.has_value()) {
    details.set_times_renewed(*times_renewed);
  }
  details.set_is_job_over(IsJobOver(status));
  if (details.ByteSizeLong() == 0) return "";
  v1::RpcStatus carrier;
  carrier.set_code(static_cast<int>(status.code()));
  carrier.set_message(message);
  carrier.add_details()->PackFrom(details);
  return carrier.SerializeAsString();
}

absl::Status WithDetails(absl::Status status, const std::string& serialized) {
  v1::RpcStatus carrier;
  if (serialized.empty() || !carrier.ParseFromString(serialized)) return status;
  for (const google::protobuf::Any& any : carrier.details()) {
    v1::ErrorDetails details;
    if (!any.Is<v1::ErrorDetails>() || !any.UnpackTo(&details)) continue;
    if (net::CheckPeerAddress("the coordinator", details.coordinator()).ok()) {
      status = WithCoordinator(std::move(status), details.coordinator());
    }
    if (details.is_job_over()) status = WithJobOver(std::move(status));
    if (details.retry_after_ms() > 0) {
      status = WithRetryAfter(
          std::move(status),
          std::min(absl::Milliseconds(details.retry_after_ms()), kLongestRetryAfter));
    }
    if (details.has_times_renewed()) {
      status = WithTimesRenewed(std::move(status), details.times_renewed());
    }
  }
  return status;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  if (message.size() > kMaxMessageBytes) {
    message.resize(kMaxMessageBytes - 3);
    message += "...";
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message,
                      DetailsOf(status, message));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = PeerText(status.error_message(), kMaxMessageBytes);
  const int code = static_cast<int>(status.error_code());
  if (!IsKnown(code)) {
    return absl::UnavailableError(absl::StrCat("gRPC status code ", code, ": ", text));
  }
  const absl::StatusCode native = ToAbslCode(status.error_code());
  const std::string name = absl::StatusCodeToString(native);
  if (native == absl::StatusCode::kInternal || native == absl::StatusCode::kUnknown) {
    return absl::UnavailableError(absl::StrCat("the connection or the peer failed (", name,
                                               text.empty() ? "" : ": ", text, ")"));
  }
  // gRPC gives these messages if the peer is a web server, or another program that does not speak
  // gRPC.
  if (absl::StrContains(text, "http1.x") || absl::StrContains(text, "parsing HTTP/2")) {
    return absl::Status(native,
                        absl::StrCat(text,
                                     "; the program that answers there is no ps_server. Check "
                                     "the address and its port"));
  }
  if (!text.empty()) return WithDetails(absl::Status(native, text), status.error_details());
  switch (RemedyFor(native)) {
    case Remedy::kReconnect:
      if (native == absl::StatusCode::kUnauthenticated) {
        return absl::UnauthenticatedError(
            "the server cannot identify this program: its credentials were damaged on their way, "
            "or are of another cluster");
      }
      return absl::Status(
          native,
          "the server does not know this call: it is no ps_server, or it is of another release. "
          "Check the address, and use the same release on both sides");
    case Remedy::kGiveUp:
      return absl::UnavailableError(absl::StrCat("the server gave no reason (", name, ")"));
    default:
      return absl::Status(native, absl::StrCat("the server gave no reason (", name, ")"));
  }
}

}  // namespace lodestar::wire
