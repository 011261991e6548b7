// SPDX-License-Identifier: Apache-2.0

// Says what a caller does after a call to another process of the cluster has failed. This is the
// only table of remedies, for workers, servers and tools. A failure is final if the peer has
// refused the call and has named the cause, or if this process itself has failed. All failures of a
// connection are temporary: proto/status_mapping.h makes them Unavailable.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace lodestar {

enum class Remedy : uint8_t {
  kRepeat,      // make the same call again, with back-off
  kRejoin,      // this incarnation is over: register again, with back-off
  kAwaitLease,  // another process has the worker's name: register again until its lease ends
  // Connect again. Either the answer was damaged on the way, or the server does not know the call
  // or the caller: see UnknownCalls.
  kReconnect,
  kGiveUp,  // the same call would be refused again
};

// Returns the remedy for a status whose code is not OK.
Remedy RemedyFor(absl::StatusCode code);
inline Remedy RemedyFor(const absl::Status& status) { return RemedyFor(status.code()); }

// Counts answers with the remedy kReconnect. Such an answer has two possible reasons: a call or a
// connection was damaged, or the peer does not know a call or its caller. After kMaxInARow such
// answers, the second reason is assumed. For callers that make one attempt after another, and use a
// new connection after each such answer. Not thread-safe.
class UnknownCalls {
 public:
  static constexpr int kMaxInARow = 5;

  // Must be called with the `status` of each attempt that has ended. Returns true if another
  // attempt would end in the same way. If the peer did its work earlier in this attempt,
  // `has_worked` must be true, and the count begins again from 0.
  bool IsFinal(const absl::Status& status, bool has_worked);

 private:
  int num_in_a_row_ = 0;
};

// Returns `status` with a code whose remedy is kGiveUp. For errors of this machine, such as of its
// data or device. The text stays the same. OK stays OK.
absl::Status AsFinal(const absl::Status& status);

}  // namespace lodestar
