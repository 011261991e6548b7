// SPDX-License-Identifier: Apache-2.0

// LeaseStore is the part of a replicated service (such as etcd) that a leader lease needs. The
// service grants leases, which end by themselves, and holds one key that is bound to a lease.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lodestar::lease {

// A LeaseKey is the content of the key.
struct LeaseKey {
  std::string value;
  int64_t lease = 0;  // the key ends with this lease; 0 means that the key has no lease
  // Number of the change in the store that created the key. A key that is created later has a
  // higher number.
  int64_t revision = 0;
};

struct LeaseCall {
  enum class Kind {
    kRead,       // reads the key
    kGrant,      // grants a new lease, for `ttl`
    kClaim,      // makes the key, with `value` and `lease`, if there is none; otherwise reads it
    kKeepAlive,  // renews `lease` for its time to live from now on
    kRevoke,     // ends `lease`, and removes the key if it is bound to that lease
  };

  Kind kind = Kind::kRead;
  int endpoint = 0;  // index of the store's address to call
  absl::Duration ttl = absl::ZeroDuration();
  int64_t lease = 0;
  std::string value = "";
  absl::Duration timeout = absl::ZeroDuration();
};

struct LeaseAnswer {
  // Status of the call. After an error, the call may still have been carried out, or may be carried
  // out later. Exception: after NotFound from kClaim it was not carried out, because the lease does
  // not exist.
  absl::Status status = absl::OkStatus();
  int64_t lease = 0;                           // answer to kGrant
  absl::Duration ttl = absl::ZeroDuration();   // of kGrant, kKeepAlive; 0 means no such lease
  std::optional<LeaseKey> key = std::nullopt;  // answer to kRead, kClaim; not set: the key is free
};

class LeaseStore {
 public:
  virtual ~LeaseStore() = default;
  virtual int num_endpoints() const = 0;
  // Sends the call. Blocks until its answer has come, or until shortly after the call's timeout.
  // Only one call may run at a time.
  virtual LeaseAnswer Call(const LeaseCall& call) = 0;
};

}  // namespace lodestar::lease
