// ConnectPatience: for how long a program that reaches no server goes on trying. A server that
// answers, even with a refusal that may pass, is reached. Pure: the time is given.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

class ConnectPatience {
 public:
  // How long a server of shard 0 may be away by default. What moves a server to another machine
  // takes minutes: Kubernetes gives a node five, and a volume of a lost node six more.
  static constexpr absl::Duration kDefault = absl::Hours(1);
  static constexpr absl::Duration kLongest = absl::Hours(24 * 365);

  struct Config {
    absl::Duration timeout = absl::InfiniteDuration();  // infinite means for ever
    std::string setting = "--connect_timeout";          // the name of `timeout` for people
    std::string servers;                                // the addresses that are tried
  };

  // The time that a user has given: 0 means for ever. Errors: InvalidArgument naming `setting`.
  static absl::StatusOr<absl::Duration> TimeoutOf(absl::string_view setting, absl::Duration given);

  explicit ConnectPatience(Config config) : config_(std::move(config)) {}

  // An attempt that began at `began` was not answered.
  void OnUnanswered(absl::Time began);
  // A server has answered. The time begins again with the next attempt that is not answered.
  void OnAnswered() { since_.reset(); }

  // Returns true if the time is over.
  bool IsOver(absl::Time now) const;
  // "tries 10.0.0.1:50051 again for up to 59m50s (--connect_timeout=1h)".
  std::string WhatIsLeft(absl::Time now) const;
  // Unavailable, with `reason`: why the last attempt was not answered. Requires IsOver().
  absl::Status Outcome(absl::string_view reason) const;

 private:
  Config config_;
  std::optional<absl::Time> since_;  // none: the last attempt was answered
};

}  // namespace lodestar
