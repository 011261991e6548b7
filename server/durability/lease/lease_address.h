// SPDX-License-Identifier: Apache-2.0

// LeaseAddress is the value of --leader_lease.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::lease {

struct LeaseAddress {
  enum class Scheme { kEtcd };

  Scheme scheme = Scheme::kEtcd;
  std::vector<std::string> endpoints;  // each is HOST:PORT
  std::string key;

  // Returns the address in the form that ParseLeaseAddress() accepts.
  std::string ToString() const;
};

// Parses SCHEME://HOST:PORT[,HOST:PORT...]/KEY. Errors: InvalidArgument (names the flag, the value
// and the allowed form).
absl::StatusOr<LeaseAddress> ParseLeaseAddress(absl::string_view value);

}  // namespace lodestar::lease
