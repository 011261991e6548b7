// SPDX-License-Identifier: Apache-2.0

#include "common/net/listen_address.h"

#include "common/runtime/status_macros.h"

namespace lodestar::net {

bool ListenAddress::IsWildcard() const { return host == "0.0.0.0" || host == "::"; }

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view value) {
  ASSIGN_OR_RETURN(HostPort address, ParseHostPort(flag, value, /*lowest_port=*/0));
  return ListenAddress{std::move(address)};
}

}  // namespace lodestar::net
