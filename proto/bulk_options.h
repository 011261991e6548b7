// SPDX-License-Identifier: Apache-2.0

// Sizes and gRPC settings that workers and servers share.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::wire {

// kChunkBytes is the payload of each chunk that we send. kMaxChunkBytes is the largest payload that
// we accept. A sender of larger chunks than kChunkBytes would wait in the middle of each chunk,
// because gRPC opens a stream's flow-control window by at most 1 MiB at a time.
inline constexpr size_t kChunkBytes = size_t{1} << 20;
inline constexpr size_t kMaxChunkBytes = size_t{4} << 20;
// Minimum of PullRequest.max_chunk_bytes.
inline constexpr size_t kMinChunkLimitBytes = size_t{1} << 10;
// Payload of the first chunk of a pushed bucket. It is small: while streams wait for space for
// their buckets, the server keeps the first chunk of each in memory.
inline constexpr size_t kFirstChunkBytes = size_t{1} << 10;
// Maximum size of a message. gRPC refuses larger messages before they are read.
inline constexpr int kMaxMessageBytes = 8 << 20;
// kSharedBlockBytes is the size of a block of shared memory. Each block holds one chunk.
// kSharedBlocks is the number of blocks for each direction. It is small enough that all blocks fit
// into the last-level cache, and large enough that neither side waits for a free block.
inline constexpr size_t kSharedBlockBytes = size_t{2} << 20;
inline constexpr int kSharedBlocks = 6;
// kDataChannelsPerServer is the number of connections from a worker to each server. A second
// connection makes loopback nearly as fast as raw TCP, and a third does not help. If a server's
// shard is smaller than kBytesForManyChannels, only one connection is used, to save memory.
inline constexpr int kDataChannelsPerServer = 2;
inline constexpr int64_t kBytesForManyChannels = int64_t{4} << 20;

// Time without an acknowledgement after which a server breaks a connection.
inline constexpr int kServerPingTimeoutMs = 20'000;

// Maximum size of a request's metadata. HTTP/2 counts 32 bytes for each entry besides its key and
// value.
inline constexpr int kMaxMetadataBytes = 8 << 10;
// Time that a peer has for the TLS handshake and the first HTTP/2 frame.
inline constexpr int kHandshakeTimeoutMs = 10'000;

// Metadata key of a bulk call. The value is the call's number, which ParameterService.DescribeCalls
// uses.
inline constexpr char kCallNumberKey[] = "lodestar-call";
// Metadata key of every call in a worker's name. The value is that worker's
// RegisterReply.life_secret.
inline constexpr char kLifeSecretKey[] = "lodestar-life";
// Metadata key of a control call. The value is the call's id in the logs of both sides
// (common/runtime/request_id.h). A server that refuses the call returns the id in the trailing
// metadata. No decision depends on it.
inline constexpr char kRequestIdKey[] = "lodestar-request";

// Returns the arguments of a data channel. If there are several channels to the same server, each
// has its own TCP connection. gRPC does not retry calls, because the application itself sends a
// stream of tensors again. Writes are buffered.
grpc::ChannelArguments DataChannelArguments();
// Returns the arguments of the channel for registration, heartbeats, grants and status.
grpc::ChannelArguments ControlChannelArguments();

// Sets how gRPC reads connections. gRPC then uses little memory per connection, and wakes a thread
// only after a whole frame of a chunk has arrived. Must be called once at the top of main(), before
// any thread. A worker inside another program must not call it.
void SetUpGrpcProcess();
struct ServerOptions {
  // Says how many bytes of a stream may arrive before the server reads them. True means that gRPC
  // measures the path and allows as many bytes as are in transit on a fully used path. False means
  // some 4 KiB. While the server reads a message, False allows 1 MiB per round trip.
  bool long_paths = false;
  // Maximum memory for messages that the server is receiving or sending. If messages need more,
  // gRPC ends calls.
  int64_t message_bytes = int64_t{1} << 30;
  // Maximum number of open calls of a client on one connection. Further calls wait in the client.
  // The number is above the server's limit of calls per worker, so that a worker that exceeds that
  // limit gets the server's error.
  int calls_per_connection = 128;
};
// Sets limits of messages, calls and memory, keepalive and buffers of a server. The caller adds
// credentials and services.
void ApplyServerOptions(grpc::ServerBuilder& builder, const ServerOptions& options = {});

}  // namespace lodestar::wire
