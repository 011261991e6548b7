// What systemd is told of a service, as sd_notify(3) and sd_watchdog_enabled(3) have it: that it is
// ready, what it does, that it still runs. Where it was started by something else: nothing.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace lodestar {

class ServiceManager {
 public:
  // Returns the one of $NOTIFY_SOCKET. If there is no such socket, systemd is told nothing.
  static ServiceManager FromEnvironment();
  // `socket` is a path, or the name of an abstract socket behind '@'. If it is empty, systemd is
  // told nothing.
  explicit ServiceManager(std::string socket) : socket_(std::move(socket)) {}

  // The service can be used, and is alive. This is to be said again more often than WatchdogSec.
  // `what_it_does` is shown by systemctl status. Other programs may have written a part of it, so
  // it is made one line, and cut to 512 bytes.
  void TellReady(absl::string_view what_it_does) const;
  // The service is there, and not alive. WatchdogSec after the last word that it is alive, systemd
  // ends it and starts it again. `since_when` is shown as `what_it_does` is.
  void TellStuck(absl::string_view since_when) const;
  void TellStopping() const;

 private:
  void Send(absl::string_view message) const;

  std::string socket_;
};

}  // namespace lodestar
