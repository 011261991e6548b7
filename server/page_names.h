// Says under which names and addresses browsers come to the pages of ps_server --http. Pure.
#pragma once

#include <string>
#include <vector>

#include "server/server_config.h"

namespace lodestar::server {

// Returns the names beside those that only this machine uses. They are what --http_names says, the
// host of --http and of --advertise, `host_name`, which is this machine's, and kServerHostName.
// Each is listed once. A name that no certificate can be issued for is left out.
std::vector<std::string> PageNames(const NetworkConfig& network, const std::string& host_name);

// Returns the names that the certificate of these pages is for. They are those of PageNames(), and
// the names that only this machine uses, because the pages answer under them as well.
std::vector<std::string> CertificateHosts(const NetworkConfig& network,
                                          const std::string& host_name);

}  // namespace lodestar::server
