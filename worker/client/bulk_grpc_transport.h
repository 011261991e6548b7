// SPDX-License-Identifier: Apache-2.0

// Makes the ParameterTransport over gRPC. It has two data channels per server (one if the server
// has little of the model). Buckets are spread over the channels by index. Slices of the caller's
// memory are sent without a copy, and bytes are received directly into their destination. With a
// server on the same machine, payloads go through shared memory, and only the small fields over
// gRPC.
//
// Waits have no deadline, because a synchronous pull may wait for the slowest worker. A call that
// stands still ends with Unavailable, and later calls use a new connection (see CallWatch).
// Keepalive also finds dead peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/params/bucket_plan.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/ids.h"
#include "proto/bulk_options.h"
#include "proto/transport_security.h"
#include "worker/client/bulk_transport.h"
#include "worker/client/device_payload.h"

namespace lodestar::client {

struct BulkGrpcTransportConfig {
  std::vector<std::string> servers;     // One host:port per shard.
  std::vector<params::Bucket> buckets;  // All buckets of the plan, by index.
  WorkerId worker;
  Incarnation incarnation;
  std::string life_secret;  // See Registration.
  int channels_per_server = wire::kDataChannelsPerServer;
  // A server with fewer bytes of the model gets one channel.
  int64_t bytes_for_many_channels = wire::kBytesForManyChannels;
  // Size of chunks in messages. A multiple of 4, at most kMaxChunkBytes.
  size_t chunk_bytes = wire::kChunkBytes;
  // Size of chunks in shared memory, with the same limits.
  size_t shared_block_bytes = wire::kSharedBlockBytes;
  // Number of threads for copies and callbacks.
  int num_threads = 2;
  // A call is ended if nothing has moved for this time and the server has given no reason. On a
  // slow path the time is extended. Infinite means that calls are never ended.
  absl::Duration patience = absl::InfiniteDuration();
  // True if payloads go through shared memory to and from servers of this machine.
  bool shared_memory = true;
  // True if another process may continue this life, for example if its instance_id is on disk.
  bool outlives_process = false;
  // Called on any thread once it is decided whether memory is shared with server `shard`. The
  // status is OK, or the reason why memory is not shared. May be null.
  std::function<void(int shard, const absl::Status& status)> on_shared_memory;
  // The registry of the device that computes. If the device accepts the shared memory, its copies
  // go directly to and from that memory. Null means that there is no device, or that the device
  // reads host memory. The registry must outlive the transport.
  HostMemoryRegistry* registry = nullptr;
  // Called on any thread for each region shared with server `shard`, if there is a registry. The
  // status is OK, or the reason why the device does not copy there. May be null.
  std::function<void(int shard, const absl::Status& status)> on_registered;
  wire::TransportSecurity security;
  // Null means no trace. The recorder must outlive the transport.
  process::TraceRecorder* trace = nullptr;
};

// Makes the transport, which connects in the background. Aborts the program if the config
// contradicts itself, such as a bucket of a shard without a server. Registrations are checked
// before, when they arrive.
std::unique_ptr<ParameterTransport> MakeBulkGrpcTransport(BulkGrpcTransportConfig config);

}  // namespace lodestar::client
