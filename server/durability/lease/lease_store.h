// SPDX-License-Identifier: Apache-2.0

// LeaseStore is a service of several machines that agree with each other (such as etcd), reduced to
// what a leader lease needs. It grants leases that end by themselves, and holds one key that is
// bound to a lease.
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
  // Number of the store's change that made the key. If a key is made later, its revision is higher.
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
  // Status of the call. An error means that the call may have been carried out, or may still be
  // carried out later. NotFound from kClaim means that it was not carried out, because the lease
  // does not exist.
  absl::Status status = absl::OkStatus();
  int64_t lease = 0;                           // answer to kGrant
  absl::Duration ttl = absl::ZeroDuration();   // of kGrant, kKeepAlive; 0 means no such lease
  std::optional<LeaseKey> key = std::nullopt;  // answer to kRead, kClaim; not set: the key is free
};

class LeaseStore {
 public:
  virtual ~LeaseStore() = default;
  virtual int num_endpoints() const = 0;
  // Sends a call and blocks until the answer comes, at most a little longer than the call's
  // timeout. Must not be called while another call runs.
  virtual LeaseAnswer Call(const LeaseCall& call) = 0;
};

}  // namespace lodestar::lease
