// SPDX-License-Identifier: Apache-2.0

// Finds the address under which other programs reach a server that listens.
#pragma once

#include <string>

#include "server/server_config.h"

namespace lodestar::server {

// Returns this machine's host name, or "localhost" if it has no name.
std::string HostName();

// Returns true if AdvertisedAddress() is this machine's host name. Other machines may be unable to
// resolve that name.
bool IsAddressGuessed(const NetworkConfig& network);

// Returns the value of --advertise. If it is not given, returns the address of --listen. If
// --listen is a wildcard, returns this machine's host name instead of the wildcard. If the port is
// 0, `real_port` takes its place.
std::string AdvertisedAddress(const NetworkConfig& network, int real_port);

}  // namespace lodestar::server
