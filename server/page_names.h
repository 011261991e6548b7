// SPDX-License-Identifier: Apache-2.0

// Finds the names and addresses under which browsers reach the pages of ps_server --http. Does no
// I/O.
#pragma once

#include <string>
#include <vector>

#include "server/server_config.h"

namespace lodestar::server {

// Returns the names of the pages, except those that only this machine uses. Each name is listed
// once. Names that a certificate cannot contain are left out. The names are:
// - those in --http_names
// - the hosts of --http and of --advertise
// - `host_name`, which is this machine's
// - kServerHostName
std::vector<std::string> PageNames(const NetworkConfig& network, const std::string& host_name);

// Returns the names for the certificate of these pages. They are the names of PageNames() and those
// that only this machine uses, because the pages answer under them too.
std::vector<std::string> CertificateHosts(const NetworkConfig& network,
                                          const std::string& host_name);

}  // namespace lodestar::server
