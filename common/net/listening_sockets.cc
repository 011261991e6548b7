// SPDX-License-Identifier: Apache-2.0

#include "common/net/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lodestar::net {
namespace {

// Maximum number of tries if the system chooses the port. The port must be free on all addresses of
// the host. Otherwise another port is tried.
constexpr int kMaxTries = 8;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

bool Set(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

bool IsWildcard(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

// Returns true if no element of `list` before `address` equals `address`. A name may have the same
// address twice. `address` is an element of `list`.
bool IsFirst(const addrinfo& address, const addrinfo* list) {
  while (list != &address &&
         (list->ai_addrlen != address.ai_addrlen ||
          std::memcmp(list->ai_addr, address.ai_addr, address.ai_addrlen) != 0)) {
    list = list->ai_next;
  }
  return list == &address;
}

sockaddr_storage AddressOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return address;
}

int PortOf(int fd) {
  const sockaddr_storage address = AddressOf(fd);
  // sin_port and sin6_port have the same offset.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// Returns the addresses that the sockets are bound to, if all are loopback addresses. Otherwise
// returns an empty list.
std::vector<std::string> LoopbackOnly(const std::vector<FileDescriptor>& sockets) {
  std::vector<std::string> hosts;
  for (const FileDescriptor& socket : sockets) {
    const sockaddr_storage address = AddressOf(socket.get());
    char host[NI_MAXHOST] = {};
    if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof(address), host,
                    sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0 ||
        !HostPort{host, 0}.IsLoopback()) {
      return {};
    }
    hosts.emplace_back(host);
  }
  return hosts;
}

// One attempt to listen on all addresses of a name.
class Try {
 public:
  Try(int port, absl::Duration unacknowledged_timeout)
      : unacknowledged_timeout_(unacknowledged_timeout) {
    result_.port = port;
  }

  // Listens on `address`. If that fails although the port is not taken, leaves the address out. For
  // example, this machine may not have the address.
  void Add(const addrinfo& address, bool is_for_both_families) {
    if (is_taken_) return;
    FileDescriptor socket = Open(address, is_for_both_families);
    if (!socket.is_open()) {
      is_taken_ = errno == EADDRINUSE;
      if (is_taken_ || error_ == 0) error_ = errno;
      return;
    }
    if (result_.port == 0) result_.port = PortOf(socket.get());
    result_.sockets.push_back(std::move(socket));
  }

  // Returns true if another process has the port on at least one address.
  bool is_taken() const { return is_taken_; }
  bool is_done() const { return !is_taken_ && !result_.sockets.empty(); }
  int error() const { return error_; }
  ListeningSockets TakeResult() { return std::move(result_); }

 private:
  // Returns a listening socket, or a closed one if that fails. errno then has the reason.
  FileDescriptor Open(const addrinfo& address, bool is_for_both_families) const {
    FileDescriptor socket(
        ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) return socket;
    sockaddr_storage place{};
    std::memcpy(&place, address.ai_addr, address.ai_addrlen);
    // sin_port and sin6_port have the same offset.
    reinterpret_cast<sockaddr_in*>(&place)->sin_port = htons(static_cast<uint16_t>(result_.port));
    const int fd = socket.get();
    // Accepted connections inherit these options.
    const bool is_listening =
        (address.ai_family != AF_INET6 ||
         Set(fd, IPPROTO_IPV6, IPV6_V6ONLY, is_for_both_families ? 0 : 1)) &&
        Set(fd, SOL_SOCKET, SO_REUSEADDR, 1) && Set(fd, IPPROTO_TCP, TCP_NODELAY, 1) &&
        Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
            static_cast<int>(absl::ToInt64Milliseconds(unacknowledged_timeout_))) &&
        bind(fd, reinterpret_cast<const sockaddr*>(&place), address.ai_addrlen) == 0 &&
        listen(fd, INT_MAX) == 0;  // INT_MAX: the system uses its own maximum
    if (is_listening) return socket;
    const int error = errno;
    socket.Reset();
    errno = error;
    return socket;
  }

  const absl::Duration unacknowledged_timeout_;
  ListeningSockets result_;
  bool is_taken_ = false;
  int error_ = 0;  // first error, or EADDRINUSE if the port is taken
};

std::string AdviceFor(int error, absl::string_view flag) {
  switch (error) {
    case EADDRINUSE:
      return absl::StrCat("stop the process that uses this port, or give another ", flag);
    case EADDRNOTAVAIL:
      return absl::StrCat("this machine does not have that address. Give ", flag,
                          " an address that `ip addr` shows, or 0.0.0.0 for all");
    case EACCES:
      return absl::StrCat("this user may not use that port; give a port of 1024 or more with ",
                          flag);
    default:
      return absl::StrCat("choose another ", flag);
  }
}

absl::Status CannotListen(const HostPort& address, absl::string_view reason,
                          absl::string_view advice) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address.ToString(), ": ", reason, "; ", advice));
}

}  // namespace

absl::StatusOr<ListeningSockets> Listen(const HostPort& address, absl::string_view flag,
                                        absl::Duration unacknowledged_timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* first = nullptr;
  const int resolved = getaddrinfo(address.host.c_str(), nullptr, &hints, &first);
  if (resolved != 0) {
    return CannotListen(
        address, gai_strerror(resolved),
        absl::StrCat("correct the host name in ", flag, ", or give an address of this machine"));
  }
  const Addresses found(first, &freeaddrinfo);
  int error = 0;
  for (int i = 0; i < kMaxTries; ++i) {
    Try attempt(address.port, unacknowledged_timeout);
    if (IsWildcard(address.host)) {
      sockaddr_in6 any{};
      any.sin6_family = AF_INET6;
      addrinfo both{};
      both.ai_family = AF_INET6;
      both.ai_addr = reinterpret_cast<sockaddr*>(&any);
      both.ai_addrlen = sizeof(any);
      attempt.Add(both, /*is_for_both_families=*/true);
    }
    if (!attempt.is_done()) {
      for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
        if (IsFirst(*one, found.get())) attempt.Add(*one, /*is_for_both_families=*/false);
      }
    }
    if (attempt.is_done()) {
      ListeningSockets result = attempt.TakeResult();
      result.loopback_only = LoopbackOnly(result.sockets);
      return result;
    }
    error = attempt.error();
    if (!attempt.is_taken() || address.port != 0) break;
  }
  return CannotListen(address, std::strerror(error), AdviceFor(error, flag));
}

}  // namespace lodestar::net
