#include "common/runtime/remedy.h"

namespace lodestar {

Remedy RemedyFor(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:        // not reachable, not ready, or the wire failed
    case absl::StatusCode::kDeadlineExceeded:   // no answer in time
    case absl::StatusCode::kResourceExhausted:  // memory, disk, message size: later there may be
    case absl::StatusCode::kDataLoss:           // a checksum does not hold
      return Remedy::kRepeat;
    case absl::StatusCode::kAborted:    // expired, dropped or replaced, or the servers began anew
    case absl::StatusCode::kCancelled:  // by the caller itself, when it learned that it has to
      return Remedy::kRejoin;
    case absl::StatusCode::kAlreadyExists:
      return Remedy::kAwaitLease;
    case absl::StatusCode::kUnimplemented:    // the name of the call
    case absl::StatusCode::kUnauthenticated:  // what shows who calls
      return Remedy::kReconnect;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kInternal:  // of this process; a peer's is Unavailable
    case absl::StatusCode::kUnknown:   // of this process, as kInternal
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
