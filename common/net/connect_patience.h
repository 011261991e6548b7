// SPDX-License-Identifier: Apache-2.0

// Decides how long a program tries to connect while no server answers. The timeout begins with the
// first unanswered attempt. Every answer ends it, even a temporary refusal. Pure: the caller passes
// the time.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::net {

class ConnectPatience {
 public:
  // Default timeout: the time that the server of shard 0 may be away. Moving a server to another
  // machine takes minutes: Kubernetes waits five minutes for a node, and six more for a volume of a
  // lost node.
  static constexpr absl::Duration kDefault = absl::Hours(1);
  static constexpr absl::Duration kLongest = absl::Hours(24 * 365);

  struct Config {
    absl::Duration timeout = absl::InfiniteDuration();  // infinite means for ever
    std::string setting = "--connect_timeout";          // name of the setting `timeout` in messages
    std::string servers;                                // the addresses that are tried
  };

  // Returns the timeout that the user's value `given` means. 0 means that the program tries for
  // ever. Errors: InvalidArgument naming `setting`.
  static absl::StatusOr<absl::Duration> TimeoutOf(absl::string_view setting, absl::Duration given);

  explicit ConnectPatience(Config config) : config_(std::move(config)) {}

  // Notes that an attempt that began at `began` was not answered.
  void OnUnanswered(absl::Time began);
  // Notes that a server has answered. The timeout begins again with the next attempt that is not
  // answered.
  void OnAnswered() { since_.reset(); }

  // Returns true if the timeout has passed.
  bool IsOver(absl::Time now) const;
  // Returns text such as "tries 10.0.0.1:50051 again for up to 59m50s (--connect_timeout=1h)".
  std::string WhatIsLeft(absl::Time now) const;
  // Returns Unavailable. `reason` says why the last attempt was not answered. Requires: IsOver().
  absl::Status Outcome(absl::string_view reason) const;

 private:
  Config config_;
  // Beginning of the first unanswered attempt. nullopt means that the last attempt was answered.
  std::optional<absl::Time> since_;
};

}  // namespace lodestar::net
