// Under which names and addresses browsers come to the pages of ps_server --http. Pure.
#pragma once

#include <string>
#include <vector>

#include "server/server_config.h"

namespace lodestar {

// Beside those of this machine alone: what --http_names says, the host of --http and of
// --advertise, and `host_name`, this machine's. Each once; what no certificate can be issued for is
// left out.
std::vector<std::string> PageNames(const NetworkConfig& network, const std::string& host_name);

}  // namespace lodestar
