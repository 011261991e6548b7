// What a caller does after a call to another process of the cluster has failed: the one table of
// it, for workers, servers and tools. Only a refusal that names its cause is final. Whatever else
// happens on a wire passes: proto/status_mapping.h makes it Unavailable.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace lodestar {

enum class Remedy : uint8_t {
  kRepeat,      // the same call again, with back-off
  kRejoin,      // this life is over: register again, with back-off
  kAwaitLease,  // the name is held: register again until the lease of its holder is over
  kReconnect,   // damaged on its way, or no server that knows it or us: see UnknownCalls
  kGiveUp,      // the same call would be refused again
};

// Returns the remedy for a status whose code is not OK.
Remedy RemedyFor(absl::StatusCode code);
inline Remedy RemedyFor(const absl::Status& status) { return RemedyFor(status.code()); }

// Tells a peer that does not know a call, or its caller, for good from one call, or one connection,
// that was damaged: both get the same answer. For a caller whose attempts come one after the
// other, each after such an answer over a connection of its own. Not thread-safe.
class UnknownCalls {
 public:
  static constexpr int kMaxInARow = 5;

  // `status` has ended an attempt. `has_worked`: not before the peer had done what it is for, so
  // that earlier answers say nothing any more. Whether another attempt would end the same.
  bool IsFinal(const absl::Status& status, bool has_worked);

 private:
  int num_in_a_row_ = 0;
};

// An error of this machine (its data, its device), whose code is not one that a peer has answered:
// another try meets the same. Keeps the text; OK stays OK.
absl::Status AsFinal(const absl::Status& status);

}  // namespace lodestar
