// Under which address others reach a server that listens, and why one cannot listen.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/server_config.h"

namespace lodestar {

// --advertise with the real port filled in, else the address of --listen, else (a wildcard) this
// machine's host name.
std::string AdvertisedAddress(const NetworkConfig& network, int real_port);

// gRPC does not say why a port could not be opened: tries again without it. Unavailable with the
// system's text and what to do.
absl::Status ExplainListenFailure(const ListenAddress& listen);

}  // namespace lodestar
