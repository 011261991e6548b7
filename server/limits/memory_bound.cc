#include "server/limits/memory_bound.h"

#include "absl/strings/str_cat.h"
#include "common/runtime/bytes_text.h"

namespace lodestar::limits {
namespace {

// gRPC's transport, its buffer for reading, and OpenSSL's for a session: more than twice of what
// idle connections were measured to take, plain and in TLS.
constexpr int64_t kBytesPerConnection = 64 << 10;
constexpr int64_t kBytesPerTlsConnection = 192 << 10;
// What gRPC keeps for a call that is open and waits for its message. The number was measured.
constexpr int64_t kBytesPerCall = 12 << 10;
// The message, what protobuf makes of it, and a layout.
constexpr int64_t kBytesPerLargeRegistration = int64_t{48} << 20;
// Names, peers, devices and grants of all whom the coordinator remembers.
constexpr int64_t kWorkerBytes = int64_t{64} << 20;
constexpr int64_t kProgramBytes = int64_t{160} << 20;

}  // namespace

std::string MemoryBound::Describe() const {
  return absl::StrCat(BytesText(total()), ": shard ", BytesText(shard), ", messages ",
                      BytesText(messages), ", connections ", BytesText(connections),
                      ", registrations ", BytesText(registrations), ", program ",
                      BytesText(program));
}

MemoryBound BoundMemory(const ServerLimits& limits, int64_t shard_bytes, bool has_tls) {
  MemoryBound bound;
  bound.shard = shard_bytes;
  bound.messages = limits.message_bytes;
  bound.connections =
      limits.max_connections * ((has_tls ? kBytesPerTlsConnection : kBytesPerConnection) +
                                limits.calls_per_connection() * kBytesPerCall);
  bound.registrations = kMaxLargeRegistrations * kBytesPerLargeRegistration + kWorkerBytes;
  bound.program = kProgramBytes;
  return bound;
}

}  // namespace lodestar::limits
