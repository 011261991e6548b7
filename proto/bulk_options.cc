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
// Longer than the longest stall of a bulk transfer: a saturated link delays pings too.
constexpr int kClientPingTimeoutMs = 10'000;
constexpr int kServerPingMs = 20'000;
// A server lets clients ping at intervals of this and more. It is below kClientPingMs: otherwise
// clients would be sent away.
constexpr int kMinPingIntervalMs = 5'000;
// A client that pings too soon more often than this is sent away.
constexpr int kMaxPingStrikes = 2;
constexpr int kReconnectInitialMs = 100;
constexpr int kReconnectMaxMs = 1'000;
// gRPC asks no sooner than that again where a name leads. By itself it takes 30 s, for which a
// server that came back under another IP address of its name is not found.
constexpr int kNameLookupPauseMs = 1'000;
// gRPC takes this one as the time that an attempt may last: a busy server answers late.
constexpr int kConnectTimeoutMs = 5'000;
// Most that is read from a connection at once, and the memory it keeps for the next read; but for
// what is left of a frame that has begun.
constexpr int kReadBytes = 32 << 10;
// So much may come on a stream that is not read.
constexpr int kReceiveWindowBytes = 4 << 10;
// Largest frame that clients may send. By default gRPC cuts a chunk into 64 of them, each with its
// own share of the work. Each is awaited as a whole, so that on a slow path a larger one would look
// like silence.
constexpr int kMaxFrameBytes = 256 << 10;
constexpr int kMinThreads = 64;
// Chunks under way on one connection without waiting for the peer's flow control.
constexpr int kWriteBufferBytes = 4 * static_cast<int>(kChunkBytes);

// What a user must know of gRPC's errors, our own messages say.
void LogForDevelopers(gpr_log_func_args* entry) {
  // gRPC aborts behind these.
  if (std::strstr(entry->message, "assertion failed") != nullptr) {
    LogError("grpc {}:{}: {}", entry->file, entry->line, entry->message);
    FlushLog();
    return;
  }
  LogDebug("grpc {}:{}: {}", entry->file, entry->line, entry->message);
}

// Protobuf writes a line for each text of a message that is not UTF-8: any peer could fill the log.
void LogProtobufForDevelopers(google::protobuf::LogLevel level, const char* file, int line,
                              const std::string& message) {
  if (level == google::protobuf::LOGLEVEL_FATAL) {
    LogError("protobuf {}:{}: {}", file, line, message);
    FlushLog();
    return;
  }
  LogDebug("protobuf {}:{}: {}", file, line, message);
}

// gRPC shuts itself down with the last channel or server, and that may wait 10 s for its own poller
// to wake up. One reference held for ever makes the end of a process, or of a test, quick.
void HoldGrpcLibrary() {
  static const bool held = [] {
    // A user that sets gRPC's own switch wants its log as it is.
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
  // A proxy from the environment would see, or lose, every tensor.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kClientPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kClientPingTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectInitialMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kNameLookupPauseMs);
  // Else a new channel inherits the connection of another to the same address, or its pauses.
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
  // These are switches of gRPC 1.51. tcp_read_chunks keeps a buffer as large as the largest burst
  // that it has ever seen for every connection, whatever kReadBytes says. The other two read a
  // frame as a whole, and tell the kernel (SO_RCVLOWAT) to wake no thread before it is there.
  setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks,tcp_frame_size_tuning,tcp_rcv_lowat",
         /*overwrite=*/0);
}

void ApplyServerOptions(grpc::ServerBuilder& builder, const ServerOptions& options) {
  HoldGrpcLibrary();
  grpc::ResourceQuota quota("server");
  quota.Resize(static_cast<size_t>(options.message_bytes));
  // The threads are for services that block one for each call, as gRPC's reflection does. gRPC ends
  // the process where it gets no thread.
  quota.SetMaxThreads(std::max(kMinThreads, 4 * UsableCores()));
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
    // The probe opens every stream's window to 4 MiB and more: many workers whose turn has
    // not come would fill the server's memory with what it does not read yet.
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
  // Two servers on one port would each get some of the workers.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace lodestar::wire
