// SPDX-License-Identifier: Apache-2.0

#include "common/process/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/runtime/peer_text.h"

namespace lodestar::process {
namespace {

constexpr size_t kMaxStatusBytes = 512;

}  // namespace

ServiceManager ServiceManager::FromEnvironment() {
  const char* const socket = std::getenv("NOTIFY_SOCKET");
  return ServiceManager(socket == nullptr ? "" : socket);
}

void ServiceManager::TellReady(absl::string_view what_it_does) const {
  Send(absl::StrCat("READY=1\nWATCHDOG=1\nSTATUS=", PeerText(what_it_does, kMaxStatusBytes)));
}

void ServiceManager::TellStuck(absl::string_view since_when) const {
  Send(absl::StrCat("STATUS=", PeerText(since_when, kMaxStatusBytes)));
}

void ServiceManager::TellStopping() const { Send("STOPPING=1\nWATCHDOG=1"); }

// Sends `message` to systemd without waiting for an answer. Errors are ignored, because the service
// can do nothing about them.
void ServiceManager::Send(absl::string_view message) const {
  sockaddr_un address{};
  if (socket_.empty() || socket_.size() >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return;
  sendto(descriptor, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
         reinterpret_cast<const sockaddr*>(&address),
         static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size()));
  close(descriptor);
}

}  // namespace lodestar::process
