// A service of several machines that agree, as far as a leader lease needs one: it grants leases
// that end by themselves, and has one key that goes with a lease.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lodestar::lease {

// What stands in the key.
struct LeaseKey {
  std::string value;
  int64_t lease = 0;  // the key ends with it; 0 means none: the key stays until it is deleted
  // Number of the change of the store that made the key: a key that is made later has a higher one.
  int64_t revision = 0;
};

struct LeaseCall {
  enum class Kind {
    kRead,       // the key
    kGrant,      // a new lease, for `ttl`
    kClaim,      // makes the key, with `value` and `lease`, where there is none; reads it else
    kKeepAlive,  // `lease` lives for its time to live from now on
    kRevoke,     // ends `lease`, and removes the key if it goes with that
  };

  Kind kind = Kind::kRead;
  int endpoint = 0;  // which of the store's addresses is asked
  absl::Duration ttl = absl::ZeroDuration();
  int64_t lease = 0;
  std::string value = "";
  absl::Duration timeout = absl::ZeroDuration();
};

struct LeaseAnswer {
  // Not OK means that it is not known whether the call was carried out, or still will be. NotFound
  // of kClaim means that it was not, as there is no such lease.
  absl::Status status = absl::OkStatus();
  int64_t lease = 0;                           // of kGrant
  absl::Duration ttl = absl::ZeroDuration();   // of kGrant and kKeepAlive; 0 means no such lease
  std::optional<LeaseKey> key = std::nullopt;  // of kRead and kClaim; none: it is free
};

class LeaseStore {
 public:
  virtual ~LeaseStore() = default;
  virtual int num_endpoints() const = 0;
  // Blocks, for little longer than the call's timeout. One call at a time.
  virtual LeaseAnswer Call(const LeaseCall& call) = 0;
};

}  // namespace lodestar::lease
