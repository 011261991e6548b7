// Says what a caller does after a call to another process of the cluster has failed. This is the
// only table of remedies, for workers, servers and tools. Only a refusal that names its cause is
// final. All other failures of a connection are temporary: proto/status_mapping.h makes them
// Unavailable.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace lodestar {

enum class Remedy : uint8_t {
  kRepeat,      // make the same call again, with back-off
  kRejoin,      // this incarnation is over: register again, with back-off
  kAwaitLease,  // another process holds the name: register again until its lease ends
  // Damaged on the way, or the server does not know the call or the caller: see UnknownCalls.
  kReconnect,
  kGiveUp,  // the same call would be refused again
};

// Returns the remedy for a status whose code is not OK.
Remedy RemedyFor(absl::StatusCode code);
inline Remedy RemedyFor(const absl::Status& status) { return RemedyFor(status.code()); }

// Tells whether a peer really does not know a call or its caller, or whether one call or one
// connection was only damaged: both get the same answer. For callers whose attempts follow one
// another. Each attempt after such an answer uses a new connection. Not thread-safe.
class UnknownCalls {
 public:
  static constexpr int kMaxInARow = 5;

  // Returns true if another attempt would end the same. `status` has ended an attempt. `has_worked`
  // means that the peer did its work in this attempt before, so that earlier answers do not count
  // any more.
  bool IsFinal(const absl::Status& status, bool has_worked);

 private:
  int num_in_a_row_ = 0;
};

// Returns `status`, an error of this machine (its data, its device), with a code that means that
// another try would fail the same. Such a code is never taken for a peer's answer. Keeps the text.
// OK stays OK.
absl::Status AsFinal(const absl::Status& status);

}  // namespace lodestar
