// CoordinatorLink over gRPC, on a channel of its own so that bulk transfers do not delay control.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/net/address_list.h"
#include "proto/transport_security.h"
#include "worker/client/coordinator_link.h"

namespace lodestar::client {

struct ClusterSessionConfig {
  AddressList coordinator;  // a server of another shard sends on to it
  wire::TransportSecurity security = {};
  std::string name;                // of this worker
  std::string device;              // for people
  ProposedSettings proposed = {};  // see RegisterCall
  uint64_t instance_id =
      0;  // random, one per process: tells a reconnect from a second worker of the same name
  uint32_t request_process = 0;  // random: what the ids of its calls begin with; see RequestIds
  absl::Duration grant_hold = absl::Seconds(5);  // how long the coordinator may keep a request open
  absl::Duration call_timeout = absl::Seconds(10);
  // The timeout of a registration if the coordinator may be at another of several addresses. The
  // coordinator holds such a call for less.
  absl::Duration search_timeout = absl::Seconds(5);
  absl::Duration leave_timeout = absl::Seconds(10);  // of the farewell
};

std::unique_ptr<CoordinatorLink> MakeClusterSession(ClusterSessionConfig config);

}  // namespace lodestar::client
