// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/http_fetch.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/net/host_port.h"
#include "common/runtime/clock.h"
#include "common/runtime/status_macros.h"

namespace lodestar::notice {
namespace {

constexpr size_t kReadBytes = 4096;

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

absl::Status SystemError(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

// Waits until one of `events` happens on the socket. Errors: DeadlineExceeded at `deadline`.
absl::Status Await(const Socket& socket, short events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - Clock::Real().Now();
    if (left <= absl::ZeroDuration())
      return absl::DeadlineExceededError("the source did not answer in time");
    pollfd waited = {socket.get(), events, 0};
    // Adds a millisecond. Otherwise a time below a millisecond would be rounded down to 0.
    const int count =
        poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left + absl::Milliseconds(1))));
    if (count > 0) return absl::OkStatus();
    if (count < 0 && errno != EINTR) return SystemError("poll", errno);
  }
}

absl::StatusOr<Socket> ConnectTo(const addrinfo& address, absl::Time deadline) {
  Socket socket(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                         address.ai_protocol));
  if (socket.get() < 0) return SystemError("socket", errno);
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return SystemError("connect", errno);
  RETURN_IF_ERROR(Await(socket, POLLOUT, deadline));
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return SystemError("connect", error);
  return socket;
}

// Connects to the first of the host's addresses that accepts a connection.
absl::StatusOr<Socket> Connect(const HttpRequest& request, absl::Time deadline) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(request.host.c_str(), absl::StrCat(request.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("the source's host name cannot be resolved: ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  absl::Status last = absl::UnavailableError("the source's host name has no IP address");
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    absl::StatusOr<Socket> socket = ConnectTo(*address, deadline);
    if (socket.ok()) return socket;
    last = socket.status();
  }
  return last;
}

absl::Status Send(const Socket& socket, absl::string_view text, absl::Time deadline) {
  while (!text.empty()) {
    RETURN_IF_ERROR(Await(socket, POLLOUT, deadline));
    const ssize_t sent = send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return SystemError("send", errno);
    if (sent > 0) text.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::StatusOr<FetchedAnswer> Receive(const Socket& socket, absl::Time deadline) {
  HttpAnswerReader reader;
  char bytes[kReadBytes];
  while (!reader.is_complete()) {
    RETURN_IF_ERROR(Await(socket, POLLIN, deadline));
    const ssize_t received = recv(socket.get(), bytes, sizeof(bytes), 0);
    if (received == 0) break;
    if (received < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return SystemError("receive", errno);
    }
    RETURN_IF_ERROR(reader.Add({bytes, static_cast<size_t>(received)}));
  }
  return reader.Finish();
}

std::string TextOf(const HttpRequest& request) {
  const std::string& host = request.host_name.empty() ? request.host : request.host_name;
  const bool is_ipv6 = absl::StrContains(host, ':');
  std::string text = absl::StrCat(
      request.method, " ", request.path, " HTTP/1.1\r\nHost: ", is_ipv6 ? "[" : "", host,
      is_ipv6 ? "]" : "", request.port == 80 ? "" : absl::StrCat(":", request.port),
      "\r\nUser-Agent: lodestar\r\nAccept: */*\r\nConnection: close\r\n");
  for (const auto& [name, value] : request.headers) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  if (request.method != "GET") absl::StrAppend(&text, "Content-Length: 0\r\n");
  return text + "\r\n";
}

}  // namespace

absl::StatusOr<FetchedAnswer> FetchHttp(const HttpRequest& request, absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().Now() + timeout;
  ASSIGN_OR_RETURN(const Socket socket, Connect(request, deadline));
  RETURN_IF_ERROR(Send(socket, TextOf(request), deadline));
  return Receive(socket, deadline);
}

absl::StatusOr<HttpRequest> ParseHttpUrl(absl::string_view flag, absl::string_view url) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("--", flag, "='", url,
                   "' is wrong; it must be http://HOST[:PORT]/PATH in ASCII without spaces"));
  absl::string_view rest = url;
  const auto is_graphic = [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); };
  if (!absl::ConsumePrefix(&rest, "http://") ||
      !std::all_of(rest.begin(), rest.end(), is_graphic)) {
    return bad;
  }
  HttpRequest request;
  const size_t slash = rest.find('/');
  std::string place(rest.substr(0, slash));
  if (slash != absl::string_view::npos) request.path = std::string(rest.substr(slash));
  // Colons inside the brackets of an IPv6 address do not begin a port.
  const size_t colon = place.rfind(':');
  const size_t bracket = place.rfind(']');
  const bool has_port =
      colon != std::string::npos && (bracket == std::string::npos || bracket < colon);
  if (!has_port) absl::StrAppend(&place, ":80");
  const absl::StatusOr<net::HostPort> parsed = net::ParseHostPort(flag, place, /*lowest_port=*/1);
  if (!parsed.ok() || absl::StrContains(place, '@')) return bad;
  request.host = parsed->host;
  request.port = parsed->port;
  return request;
}

}  // namespace lodestar::notice
