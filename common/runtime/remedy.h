// SPDX-License-Identifier: Apache-2.0

// Says what a caller does after a call to another process of the cluster has failed. This is the
// only table of remedies, for workers, servers and tools. A failure is final only if a peer has
// refused the call and has named the cause. All other failures of a connection are temporary:
// proto/status_mapping.h makes them Unavailable.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace lodestar {

enum class Remedy : uint8_t {
  kRepeat,      // make the same call again, with back-off
  kRejoin,      // this incarnation is over: register again, with back-off
  kAwaitLease,  // another process has the worker's name: register again until its lease ends
  // The answer was damaged on the way, or the server does not know the call or the caller: see
  // UnknownCalls. Connect again.
  kReconnect,
  kGiveUp,  // the same call would be refused again
};

// Returns the remedy for a status whose code is not OK.
Remedy RemedyFor(absl::StatusCode code);
inline Remedy RemedyFor(const absl::Status& status) { return RemedyFor(status.code()); }

// Counts answers with the remedy kReconnect. Such an answer has two possible reasons: the peer does
// not know a call or its caller, or a call or connection was only damaged. After kMaxInARow such
// answers the first reason is assumed. For callers that make one attempt after another, and use a
// new connection after each such answer. Not thread-safe.
class UnknownCalls {
 public:
  static constexpr int kMaxInARow = 5;

  // Must be called with the `status` at the end of each attempt. Returns true if another attempt
  // would end in the same way. `has_worked` means that the peer did its work earlier in this
  // attempt. The count then begins again from 0.
  bool IsFinal(const absl::Status& status, bool has_worked);

 private:
  int num_in_a_row_ = 0;
};

// Returns `status`, an error of this machine (its data, its device), with a code that means that
// another try would fail in the same way. The caller cannot mistake this code for a peer's answer.
// The text stays the same. OK stays OK.
absl::Status AsFinal(const absl::Status& status);

}  // namespace lodestar
