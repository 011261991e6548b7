// SPDX-License-Identifier: Apache-2.0

// RegistrationLimit limits the registrations that a coordinator accepts per minute, of one address
// and in all. So a client that registers again and again, under new names, leaves room for others.
// It has no lock, clock or thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::membership {

// Returns the part of a peer's address that the peer cannot change at will: for IPv6 the first 64
// bits. Returns "loopback" for this machine. `peer` has gRPC's form ("ipv4:10.0.0.1:4242",
// "ipv6:%5B::1%5D:4242").
std::string PeerOrigin(absl::string_view peer);

class RegistrationLimit {
 public:
  // Maximum numbers of registrations per minute. An origin that was silent for a minute may use its
  // whole number at once. If a large fleet behind one address starts together, its last worker is
  // registered after some minutes.
  struct Config {
    double per_origin = 600;
    double from_loopback = 6000;
    double in_all = 6000;
  };

  explicit RegistrationLimit(const Config& config) : config_(config) {}

  // Counts the registration if it is within the limits. Errors: ResourceExhausted with RetryAfter.
  absl::Status Take(absl::string_view peer, absl::Time now);
  // Returns the number of origins that are remembered: those that have registered within the last
  // minute.
  size_t num_origins() const { return origins_.size(); }

 private:
  struct Allowance {
    double left = 0;
    absl::Time as_of;
  };
  static void Refill(Allowance& allowance, double per_minute, absl::Time now);
  void ForgetOld(absl::Time now);

  const Config config_;
  std::map<std::string, Allowance> origins_;
  Allowance all_ = {.left = config_.in_all, .as_of = absl::InfinitePast()};
  absl::Time looked_at_ = absl::InfinitePast();
};

}  // namespace lodestar::membership
