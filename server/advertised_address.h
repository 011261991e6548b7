// Says under which address other programs reach a server that listens.
#pragma once

#include <string>

#include "server/server_config.h"

namespace lodestar::server {

// Returns what this machine calls itself, or "localhost" if it has no name.
std::string HostName();

// Returns true if AdvertisedAddress() is the host name, which other machines may not find.
bool IsAddressGuessed(const NetworkConfig& network);

// Returns --advertise with the real port filled in, else the address of --listen, else (a wildcard)
// this machine's host name.
std::string AdvertisedAddress(const NetworkConfig& network, int real_port);

}  // namespace lodestar::server
