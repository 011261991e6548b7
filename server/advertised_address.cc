// SPDX-License-Identifier: Apache-2.0

#include "server/advertised_address.h"

#include <unistd.h>

#include <climits>

namespace lodestar::server {

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};  // HOST_NAME_MAX letters, and a 0 at the end
  return gethostname(name, sizeof(name)) == 0 && name[0] != '\0' ? name : "localhost";
}

bool IsAddressGuessed(const NetworkConfig& network) {
  return network.advertise.empty() && network.listen.IsWildcard();
}

std::string AdvertisedAddress(const NetworkConfig& network, int real_port) {
  net::ListenAddress address = network.listen;
  address.port = real_port;
  if (!network.advertise.empty()) {
    const absl::StatusOr<net::ListenAddress> advertise =
        net::ParseListenAddress("advertise", network.advertise);
    if (advertise.ok()) {
      address = *advertise;
      if (address.port == 0) address.port = real_port;
    }
  } else if (IsAddressGuessed(network)) {
    address.host = HostName();
  }
  return address.ToString();
}

}  // namespace lodestar::server
