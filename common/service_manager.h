// What systemd is told of a service, as sd_notify(3) and sd_watchdog_enabled(3) have it: that it is
// ready, what it does, that it still runs. Where it was started by something else: nothing.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace lodestar {

class ServiceManager {
 public:
  // That of $NOTIFY_SOCKET, if there is one.
  static ServiceManager FromEnvironment();
  // `socket`: a path, or the name of an abstract socket behind '@'; empty: nobody is told.
  explicit ServiceManager(std::string socket) : socket_(std::move(socket)) {}

  // It can be used, and is alive: to be said again more often than WatchdogSec. What it does is
  // shown by systemctl status; others may have written of it: it is made one line, and cut to 512
  // bytes.
  void TellReady(absl::string_view what_it_does) const;
  // It is there, and not alive: WatchdogSec after the last word that it is, it is ended and started
  // again. Likewise shown.
  void TellStuck(absl::string_view since_when) const;
  void TellStopping() const;

 private:
  void Send(absl::string_view message) const;

  std::string socket_;
};

}  // namespace lodestar
