// Under which address others reach a server that listens.
#pragma once

#include <string>

#include "server/server_config.h"

namespace lodestar {

// What this machine calls itself.
std::string HostName();

// --advertise with the real port filled in, else the address of --listen, else (a wildcard) this
// machine's host name.
std::string AdvertisedAddress(const NetworkConfig& network, int real_port);

}  // namespace lodestar
