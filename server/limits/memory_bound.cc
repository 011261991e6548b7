// SPDX-License-Identifier: Apache-2.0

#include "server/limits/memory_bound.h"

#include "absl/strings/str_cat.h"
#include "common/runtime/bytes_text.h"

namespace lodestar::limits {
namespace {

// Memory of gRPC's transport, its read buffer, and OpenSSL's session. These values are more than
// twice what was measured for idle connections, plain and with TLS.
constexpr int64_t kBytesPerConnection = 64 << 10;
constexpr int64_t kBytesPerTlsConnection = 192 << 10;
// Memory that gRPC keeps for a call that is open and waits for its message. The number was
// measured.
constexpr int64_t kBytesPerCall = 12 << 10;
// Memory of one large registration: its message, its parsed form and its layout.
constexpr int64_t kBytesPerLargeRegistration = int64_t{48} << 20;
// Memory of names, peers, devices and grants of all workers that the coordinator remembers.
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
