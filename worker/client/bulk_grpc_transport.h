// This is the ParameterTransport over gRPC. It has two data channels per server (one if the server
// has little of the model), and buckets are striped over them by index. It sends raw slices of the
// caller's memory, and receives bytes straight into the destination. With a server of the same
// machine, payloads go through shared memory and only the small fields over gRPC.
//
// Waits have no deadline (a synchronous pull may wait for the slowest worker). A call that has come
// to a standstill ends with Unavailable, and what follows goes over a new connection: see
// CallWatch. A dead peer is also noticed by keepalive.
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
  std::vector<std::string> servers;  // host:port, by shard
  std::vector<Bucket> buckets;       // the plan, by index
  WorkerId worker;
  Incarnation incarnation;
  std::string life_secret;  // see Registration
  int channels_per_server = wire::kDataChannelsPerServer;
  // A server with less of the model gets one channel.
  int64_t bytes_for_many_channels = wire::kBytesForManyChannels;
  size_t chunk_bytes = wire::kChunkBytes;               // a multiple of 4, at most kMaxChunkBytes
  size_t shared_block_bytes = wire::kSharedBlockBytes;  // the same, if memory is shared
  int num_threads = 2;                                  // for copies and callbacks
  // A call is ended once nothing has moved for so long and the server has given no reason. Infinite
  // means that calls are not watched. The time grows if a path turns out to be slow.
  absl::Duration patience = absl::InfiniteDuration();
  // True if payloads go through shared memory to and from servers of this machine.
  bool shared_memory = true;
  // True if another process may go on with this life, for example if its instance_id is on disk.
  bool outlives_process = false;
  // Called on any thread when it is known whether memory is shared with server `shard`: OK, or why
  // it is not. May be null.
  std::function<void(int shard, const absl::Status& status)> on_shared_memory;
  // The registry of the device that computes. If the device accepts the shared memory, its copies
  // go straight to and from it. Null means that there is no device, or that it reads the host's
  // memory. The registry must outlive the transport.
  HostMemoryRegistry* registry = nullptr;
  // If there is a registry, called on any thread for each region that is shared with server
  // `shard`: OK, or why the device does not copy there. May be null.
  std::function<void(int shard, const absl::Status& status)> on_registered;
  wire::TransportSecurity security;
  TraceRecorder* trace = nullptr;  // null means no trace; must outlive the transport
};

// Connects in the background. Aborts if the config contradicts itself (a bucket of a shard that has
// no server): registrations are checked where they arrive.
std::unique_ptr<ParameterTransport> MakeBulkGrpcTransport(BulkGrpcTransportConfig config);

}  // namespace lodestar::client
