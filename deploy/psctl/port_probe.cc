// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/port_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/net/host_port.h"
#include "common/runtime/file_descriptor.h"

namespace lodestar::psctl {
namespace {

bool Connects(const addrinfo& place, absl::Duration patience) {
  const FileDescriptor own(
      socket(place.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, place.ai_protocol));
  if (!own.is_open()) return false;
  if (connect(own.get(), place.ai_addr, place.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd wanted = {.fd = own.get(), .events = POLLOUT, .revents = 0};
  if (poll(&wanted, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) != 1) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(own.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

bool AcceptsConnections(const std::string& address, absl::Duration patience) {
  const absl::StatusOr<net::HostPort> place = net::ParseHostPort("", address, /*lowest_port=*/1);
  if (!place.ok()) return false;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(place->host.c_str(), absl::StrCat(place->port).c_str(), &wanted, &found) != 0) {
    return false;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (Connects(*one, patience)) return true;
  }
  return false;
}

}  // namespace lodestar::psctl
