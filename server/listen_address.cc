#include "server/listen_address.h"

#include <arpa/inet.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace lodestar {
namespace {

constexpr int kMaxPort = 65535;

}  // namespace

std::string ListenAddress::ToString() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

bool ListenAddress::IsLoopback() const {
  if (host == "localhost" || host == "::1") return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

bool ListenAddress::IsWildcard() const { return host == "0.0.0.0" || host == "::"; }

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view value) {
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, " is not HOST:PORT with a port of 0 to ", kMaxPort,
                   ", as in 127.0.0.1:50051, 0.0.0.0:50051 or [::1]:50051"));
  const size_t colon = value.rfind(':');
  if (colon == absl::string_view::npos) return wrong;
  ListenAddress address;
  if (!absl::SimpleAtoi(value.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > kMaxPort) {
    return wrong;
  }
  absl::string_view host = value.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") != absl::ConsumeSuffix(&host, "]")) return wrong;
  const bool had_brackets = host.size() + 2 == colon;
  if (host.empty() || (!had_brackets && host.find(':') != absl::string_view::npos)) return wrong;
  address.host = std::string(host);
  return address;
}

}  // namespace lodestar
