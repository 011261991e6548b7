#include "common/host_port.h"

#include <arpa/inet.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace lodestar {
namespace {

constexpr int kMaxPort = 65535;

}  // namespace

std::string HostPort::ToString() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

bool HostPort::IsLoopback() const {
  if (host == "localhost" || host == "::1") return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view flag, absl::string_view value,
                                       int lowest_port) {
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, " is not HOST:PORT with a port of ", lowest_port, " to ",
                   kMaxPort, ", as in 127.0.0.1:50051, server1:50051 or [::1]:50051"));
  const size_t colon = value.rfind(':');
  if (colon == absl::string_view::npos) return wrong;
  HostPort address;
  if (!absl::SimpleAtoi(value.substr(colon + 1), &address.port) || address.port < lowest_port ||
      address.port > kMaxPort) {
    return wrong;
  }
  absl::string_view host = value.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") != absl::ConsumeSuffix(&host, "]")) return wrong;
  const bool had_brackets = host.size() + 2 == colon;
  if (host.empty() || (!had_brackets && host.find(':') != absl::string_view::npos)) return wrong;
  // A scheme or a path is not part of a name: nothing would ever answer there.
  if (host.find_first_of("/ \t") != absl::string_view::npos) return wrong;
  address.host = std::string(host);
  return address;
}

}  // namespace lodestar
