// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/remedy.h"

namespace lodestar {

Remedy RemedyFor(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:       // not reachable, not ready, or the connection failed
    case absl::StatusCode::kDeadlineExceeded:  // no answer in time
    // Memory, disk space or a limit of message sizes does not suffice now, and may suffice later.
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDataLoss:  // a checksum does not match
      return Remedy::kRepeat;
    // The worker expired, was dropped or was replaced, or the servers started again.
    case absl::StatusCode::kAborted:
    // The caller cancelled its own call because it must register again.
    case absl::StatusCode::kCancelled:
      return Remedy::kRejoin;
    case absl::StatusCode::kAlreadyExists:
      return Remedy::kAwaitLease;
    case absl::StatusCode::kUnimplemented:    // the peer does not know the call's name
    case absl::StatusCode::kUnauthenticated:  // the peer does not accept the caller's credentials
      return Remedy::kReconnect;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    // This process has failed. An INTERNAL error of a peer arrives as Unavailable.
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:  // an error of this process, like kInternal
    case absl::StatusCode::kOk:
    default:
      return Remedy::kGiveUp;
  }
}

bool UnknownCalls::IsFinal(const absl::Status& status, bool has_worked) {
  if (has_worked) num_in_a_row_ = 0;
  if (RemedyFor(status) != Remedy::kReconnect) return false;
  return ++num_in_a_row_ >= kMaxInARow;
}

absl::Status AsFinal(const absl::Status& status) {
  if (status.ok() || RemedyFor(status) == Remedy::kGiveUp) return status;
  return absl::FailedPreconditionError(status.message());
}

}  // namespace lodestar
