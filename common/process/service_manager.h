// SPDX-License-Identifier: Apache-2.0

// Tells systemd whether a service is ready, what it does, and that it is alive. Uses the protocol
// of sd_notify(3) and sd_watchdog_enabled(3). If systemd did not start the process, sends nothing.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace lodestar::process {

class ServiceManager {
 public:
  // Returns a manager for the socket in $NOTIFY_SOCKET. If the variable is not set, the manager
  // sends nothing.
  static ServiceManager FromEnvironment();
  // `socket` is a path, or '@' and the name of an abstract socket. If it is empty, nothing is sent.
  explicit ServiceManager(std::string socket) : socket_(std::move(socket)) {}

  // Tells systemd that the service is ready and alive. Must be called more often than every
  // WatchdogSec. `systemctl status` shows `what_it_does`. That text may contain text from other
  // programs, so it is made one line and cut to 512 bytes.
  void TellReady(absl::string_view what_it_does) const;
  // Tells systemd that the service runs but is stuck. This does not count as a sign of life: after
  // WatchdogSec without TellReady(), systemd ends the service and starts it again. `since_when` is
  // shown like `what_it_does`.
  void TellStuck(absl::string_view since_when) const;
  void TellStopping() const;

 private:
  void Send(absl::string_view message) const;

  std::string socket_;
};

}  // namespace lodestar::process
