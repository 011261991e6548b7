// SPDX-License-Identifier: Apache-2.0

// Makes the CoordinatorLink over gRPC. It has its own channel, so that bulk transfers do not delay
// control calls.
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
  // Addresses of the coordinator or of servers of other shards, which refer the worker to the
  // coordinator.
  net::AddressList coordinator;
  wire::TransportSecurity security = {};
  std::string name;                     // The worker's name.
  std::string device;                   // The device, for messages.
  job::ProposedSettings proposed = {};  // See RegisterCall.
  uint64_t instance_id =
      0;  // Random, one per process. Tells a reconnect from a second worker of the same name.
  // Random. The ids of this process's calls begin with it; see RequestIds.
  uint32_t request_process = 0;
  // Maximum time that the coordinator may take to answer a request for a grant.
  absl::Duration grant_hold = absl::Seconds(5);
  absl::Duration call_timeout = absl::Seconds(10);
  // Timeout of a registration if there are several addresses to try. The coordinator needs less
  // time than this to answer.
  absl::Duration search_timeout = absl::Seconds(5);
  // Timeout for telling the coordinator that this worker leaves.
  absl::Duration leave_timeout = absl::Seconds(10);
};

std::unique_ptr<CoordinatorLink> MakeClusterSession(ClusterSessionConfig config);

}  // namespace lodestar::client
