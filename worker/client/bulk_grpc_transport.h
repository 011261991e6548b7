// SPDX-License-Identifier: Apache-2.0

// Makes the ParameterTransport over gRPC.
// - It has two data channels per server, or one if the server's part of the model is small. The
//   bucket index decides the channel.
// - It sends slices of the caller's memory without a copy, and writes received bytes directly to
//   their destination.
// - If a server is on the same machine, payloads go through shared memory, and gRPC carries only
//   the small fields.
// - Calls have no deadline, because a synchronous pull may wait for the slowest worker. If a call
//   moves no data without a reason, it ends with Unavailable, and later calls use a new connection
//   (see CallWatch).
// - Keepalive also finds dead peers.
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
  // If a server has fewer bytes of the model than this number, it gets one channel instead of two.
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
  // True if another process may continue this life after this process has ended, for example if the
  // instance_id is on disk. The server then does not end the life with the process.
  bool outlives_process = false;
  // Called on any thread once it is decided whether memory is shared with server `shard`. The
  // status is OK, or the reason why memory is not shared. May be null.
  std::function<void(int shard, const absl::Status& status)> on_shared_memory;
  // Registry of the device that computes. If it can register the shared memory, the device copies
  // to and from that memory without the processor. Null means that there is no device, or that the
  // device reads host memory. The registry must outlive the transport.
  HostMemoryRegistry* registry = nullptr;
  // If there is a registry, called on any thread for each region of memory shared with server
  // `shard`. The status is OK, or the reason why the device cannot use the region. May be null.
  std::function<void(int shard, const absl::Status& status)> on_registered;
  wire::TransportSecurity security;
  // Null means no trace. The recorder must outlive the transport.
  process::TraceRecorder* trace = nullptr;
};

// Makes the transport, which connects in the background. Aborts the program if the config
// contradicts itself, for example if a bucket belongs to a shard without a server. The caller must
// check a registration before it makes a config from it.
std::unique_ptr<ParameterTransport> MakeBulkGrpcTransport(BulkGrpcTransportConfig config);

}  // namespace lodestar::client
