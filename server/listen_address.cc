#include "server/listen_address.h"

#include <arpa/inet.h>

#include "common/status_macros.h"

namespace lodestar {

bool ListenAddress::IsLoopback() const {
  if (host == "localhost" || host == "::1") return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

bool ListenAddress::IsWildcard() const { return host == "0.0.0.0" || host == "::"; }

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view value) {
  ASSIGN_OR_RETURN(HostPort address, ParseHostPort(flag, value, /*lowest_port=*/0));
  return ListenAddress{std::move(address)};
}

}  // namespace lodestar
