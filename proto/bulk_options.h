// Sizes and gRPC settings that both ends of the wire share.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::wire {

// Payload of one chunk as we send it, and the most that anyone may send. gRPC opens the window of a
// stream by at most 1 MiB at a time: a larger chunk costs one more wait for it in the middle.
inline constexpr size_t kChunkBytes = size_t{1} << 20;
inline constexpr size_t kMaxChunkBytes = size_t{4} << 20;
// The least that a client may want chunks of a pull to be limited to.
inline constexpr size_t kMinChunkLimitBytes = size_t{1} << 10;
// Payload of the first chunk of a bucket that is pushed. A server holds it, whole, for every stream
// that waits until there is space for its bucket.
inline constexpr size_t kFirstChunkBytes = size_t{1} << 10;
// No message is larger; gRPC refuses those that are before they are read.
inline constexpr int kMaxMessageBytes = 8 << 20;
// Shared memory is cut into blocks of this size, one chunk in each. So many for each direction: all
// of them stay in the last-level cache, and neither side waits for the other.
inline constexpr size_t kSharedBlockBytes = size_t{2} << 20;
inline constexpr int kSharedBlocks = 6;
// A second connection brings loopback nearer to raw TCP; more do not help. A server with less
// than this of the model gets one: two would only cost it the memory of a connection per worker.
inline constexpr int kDataChannelsPerServer = 2;
inline constexpr int64_t kBytesForManyChannels = int64_t{4} << 20;

// A server breaks a connection whose peer does not acknowledge anything for that long.
inline constexpr int kServerPingTimeoutMs = 20'000;

// The most metadata of a request, with the overhead that HTTP/2 counts.
inline constexpr int kMaxMetadataBytes = 8 << 10;
// How long a peer has for TLS, and for the first frame of HTTP/2.
inline constexpr int kHandshakeTimeoutMs = 10'000;

// Metadata of a bulk call: its number, for ParameterService.DescribeCalls.
inline constexpr char kCallNumberKey[] = "lodestar-call";
// Metadata of every call in a worker's name: RegisterReply.life_secret.
inline constexpr char kLifeSecretKey[] = "lodestar-life";
// Metadata of a control call: its id in the logs of both sides (common/runtime/request_id.h). A
// server that refuses the call has it in the trailing metadata of its answer; nothing depends on
// it.
inline constexpr char kRequestIdKey[] = "lodestar-request";

// One data channel of several to the same server: its own TCP connection, no retries by gRPC (a
// stream of tensors is sent again by the application), writes buffered ahead.
grpc::ChannelArguments DataChannelArguments();
// The channel of registration, heartbeats, grants and status.
grpc::ChannelArguments ControlChannelArguments();

// How gRPC reads connections: memory per connection that is small and the same over time, and no
// wake-up before what is read next is there, a frame of a chunk. Called once at the top of main(),
// before any thread; programs of others, into which a worker is loaded, are left as they are.
void SetUpGrpcProcess();
struct ServerOptions {
  // If it is true, what a path holds may be on its way on every stream, whether it is read or not.
  // Otherwise little is, and up to 1 MiB per round trip while it is read.
  bool long_paths = false;
  // The most bytes of messages on their way. Beyond it gRPC ends calls.
  int64_t message_bytes = int64_t{1} << 30;
  // How many calls a client may have open on one connection. The client keeps more back by itself.
  // It is more than a worker may have in all: otherwise the worker would hear nothing of that
  // limit.
  int calls_per_connection = 128;
};
// Sets limits of messages, calls and memory, keepalive and buffers of a server. Credentials and
// services are the caller's.
void ApplyServerOptions(grpc::ServerBuilder& builder, const ServerOptions& options = {});

}  // namespace lodestar::wire
