// SPDX-License-Identifier: Apache-2.0

// Tells systemd the state of a service, with the protocol of sd_notify(3) and
// sd_watchdog_enabled(3): whether it is ready, what it does, and that it is alive. If systemd did
// not start the process, nothing is sent.
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
  // WatchdogSec. systemctl status shows `what_it_does`. Other programs may have written a part of
  // that text, so it is made one line and cut to 512 bytes.
  void TellReady(absl::string_view what_it_does) const;
  // Tells systemd that the service is running but stuck. If the service has not reported for
  // WatchdogSec that it is alive, systemd ends it and starts it again. `since_when` is shown like
  // `what_it_does`.
  void TellStuck(absl::string_view since_when) const;
  void TellStopping() const;

 private:
  void Send(absl::string_view message) const;

  std::string socket_;
};

}  // namespace lodestar::process
