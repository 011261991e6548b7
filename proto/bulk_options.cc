// SPDX-License-Identifier: Apache-2.0

#include "proto/bulk_options.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/logging/logging.h"
#include "common/machine/usable_cores.h"

namespace lodestar::wire {
namespace {

constexpr int kClientPingMs = 10'000;
// Timeout of a ping. It is longer than the longest stall of a bulk transfer, because a full link
// also delays pings.
constexpr int kClientPingTimeoutMs = 10'000;
constexpr int kServerPingMs = 20'000;
// Minimum interval of a client's pings. A server disconnects clients that ping more often. It is
// below kClientPingMs, so that pings of our clients are allowed.
constexpr int kMinPingIntervalMs = 5'000;
// Maximum number of a client's pings that come sooner than kMinPingIntervalMs after the ping
// before. After more such pings, the server disconnects the client.
constexpr int kMaxPingStrikes = 2;
constexpr int kReconnectInitialMs = 100;
constexpr int kReconnectMaxMs = 1'000;
// Minimum pause before gRPC looks a host name up again. With gRPC's default, clients would not find
// a server for 30 s after it has come back under another IP address.
constexpr int kNameLookupPauseMs = 1'000;
// Minimum timeout of a connection attempt. It is long, because a busy server answers late.
constexpr int kConnectTimeoutMs = 5'000;
// Maximum number of bytes that are read from a connection at once. Each connection keeps a buffer
// of this size for the next read. If the rest of a frame is larger, it is still read at once.
constexpr int kReadBytes = 32 << 10;
// Maximum number of bytes that may arrive on a stream before they are read.
constexpr int kReceiveWindowBytes = 4 << 10;
// Maximum size of a frame that clients may send. gRPC's default would cut a chunk into 64 frames,
// which each cost processing time. A frame is received as a whole. If frames were larger, a client
// on a slow path would seem to send nothing for a long time.
constexpr int kMaxFrameBytes = 256 << 10;
constexpr int kMinThreads = 64;
// Maximum number of bytes that gRPC queues on a stream for writes with a buffer hint: four chunks.
// Such writes do not wait for the peer's flow control.
constexpr int kWriteBufferBytes = 4 * static_cast<int>(kChunkBytes);

// Handles gRPC's log messages, which are for developers. Users get our own error messages.
void LogForDevelopers(gpr_log_func_args* entry) {
  // After a failed assertion gRPC aborts the process, so its message is logged as our error.
  if (std::strstr(entry->message, "assertion failed") != nullptr) {
    logging::LogError("grpc {}:{}: {}", entry->file, entry->line, entry->message);
    logging::FlushLog();
    return;
  }
  logging::LogDebug("grpc {}:{}: {}", entry->file, entry->line, entry->message);
}

// Handles protobuf's log messages. protobuf logs each text that is not UTF-8, so without this
// function any peer could fill the log.
void LogProtobufForDevelopers(google::protobuf::LogLevel level, const char* file, int line,
                              const std::string& message) {
  if (level == google::protobuf::LOGLEVEL_FATAL) {
    logging::LogError("protobuf {}:{}: {}", file, line, message);
    logging::FlushLog();
    return;
  }
  logging::LogDebug("protobuf {}:{}: {}", file, line, message);
}

// Keeps gRPC initialized for ever. Otherwise gRPC would shut down with its last channel or server,
// and the shutdown may wait 10 s for gRPC's own poller to wake up.
void HoldGrpcLibrary() {
  static const bool held = [] {
    // If the user has set gRPC's own variable, gRPC's log is left as it is.
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(&LogForDevelopers);
    google::protobuf::SetLogHandler(&LogProtobufForDevelopers);
    grpc_init();
    return true;
  }();
  (void)held;
}

void SetCommon(grpc::ChannelArguments& arguments) {
  HoldGrpcLibrary();
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // Ignores proxies that the environment names, because a proxy would see all tensors, or not let
  // them through.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kClientPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kClientPingTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectInitialMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kNameLookupPauseMs);
  // Without this option, a new channel uses the connection of another channel to the same address,
  // or waits while that channel pauses between connection attempts.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
}

}  // namespace

grpc::ChannelArguments DataChannelArguments() {
  grpc::ChannelArguments arguments;
  SetCommon(arguments);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, kWriteBufferBytes);
  return arguments;
}

grpc::ChannelArguments ControlChannelArguments() {
  grpc::ChannelArguments arguments;
  SetCommon(arguments);
  return arguments;
}

void SetUpGrpcProcess() {
  // Experiments of gRPC 1.51. tcp_read_chunks is turned off, because it keeps a buffer as large as
  // the connection's largest burst and ignores kReadBytes. tcp_frame_size_tuning and tcp_rcv_lowat
  // are turned on. With them, gRPC reads a frame as a whole, and the kernel (SO_RCVLOWAT) wakes no
  // thread before the whole frame has arrived.
  setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks,tcp_frame_size_tuning,tcp_rcv_lowat",
         /*overwrite=*/0);
}

void ApplyServerOptions(grpc::ServerBuilder& builder, const ServerOptions& options) {
  HoldGrpcLibrary();
  grpc::ResourceQuota quota("server");
  quota.Resize(static_cast<size_t>(options.message_bytes));
  // gRPC needs threads for services that block one thread per call, such as its reflection. If gRPC
  // gets no thread, it ends the process.
  quota.SetMaxThreads(std::max(kMinThreads, 4 * machine::UsableCores()));
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.calls_per_connection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxPingStrikes);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, kWriteBufferBytes);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  if (!options.long_paths) {
    // Turns off gRPC's probe of the bandwidth. It would open every stream's window to 4 MiB and
    // more. Many workers that wait for their turn would then fill the server's memory with data
    // that it does not read yet.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kReceiveWindowBytes);
  }
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kServerPingMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kServerPingTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  // If this option were on, two servers could listen on the same port, and each would get some of
  // the workers.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace lodestar::wire
