// SPDX-License-Identifier: Apache-2.0

// Converts the status page's data to the message of proto/status_service.proto.
#pragma once

#include <cstdint>

#include "common/job/job_spec.h"
#include "proto/status_service.pb.h"
#include "server/firewall/connection_table.h"
#include "server/limits/memory_bound.h"
#include "server/limits/refusal_counts.h"
#include "server/limits/server_limits.h"
#include "server/status/status_board.h"

namespace lodestar::rpc {

// Sets the counts of connections. They are about the port of the server that is asked for the
// status.
void SetPort(const firewall::ConnectionCounts& counts, v1::ClusterStatus* status);
// Sets the limits of the server that is asked for the status. `memory_bytes` is the memory that its
// process uses.
void SetLimits(const limits::ServerLimits& limits, const limits::MemoryBound& bound,
               int64_t memory_bytes, const limits::RefusalCounts& refusals,
               v1::ClusterStatus* status);
v1::ClusterStatus ToProto(const status::ClusterReport& report, const job::JobSpec& job);

}  // namespace lodestar::rpc
