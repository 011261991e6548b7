// Under which names and addresses browsers come to the pages of ps_server --http. Pure.
#pragma once

#include <string>
#include <vector>

#include "server/server_config.h"

namespace lodestar {

// Beside those of this machine alone: what --http_names says, the host of --http and of
// --advertise, `host_name`, this machine's, and kServerHostName. Each once; what no certificate can
// be issued for is left out.
std::vector<std::string> PageNames(const NetworkConfig& network, const std::string& host_name);

// What the certificate of these pages is for: the same, and the names of this machine alone, under
// which they are answered, too.
std::vector<std::string> CertificateHosts(const NetworkConfig& network,
                                          const std::string& host_name);

}  // namespace lodestar
