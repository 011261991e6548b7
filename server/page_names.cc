// SPDX-License-Identifier: Apache-2.0

#include "server/page_names.h"

#include <algorithm>

#include "common/security/certificates.h"

namespace lodestar::server {

std::vector<std::string> PageNames(const NetworkConfig& network, const std::string& host_name) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (!security::CheckHostName("", name).ok()) return;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& name : network.http_names) add(name);
  if (network.http.has_value() && !network.http->IsWildcard()) add(network.http->host);
  const absl::StatusOr<net::ListenAddress> advertise =
      net::ParseListenAddress("", network.advertise);
  if (advertise.ok()) add(advertise->host);
  add(host_name);
  add(security::kServerHostName);
  return names;
}

std::vector<std::string> CertificateHosts(const NetworkConfig& network,
                                          const std::string& host_name) {
  std::vector<std::string> hosts = PageNames(network, host_name);
  for (const char* own : {"localhost", "127.0.0.1", "::1"}) {
    if (std::find(hosts.begin(), hosts.end(), own) == hosts.end()) hosts.push_back(own);
  }
  return hosts;
}

}  // namespace lodestar::server
