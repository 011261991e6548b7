// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/congestion_control.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace lodestar::firewall {
namespace {

// Above this round trip, bytes may be sent again because the path itself loses packets.
constexpr absl::Duration kShortPath = absl::Milliseconds(2);
// Minimum number of bytes sent before IsMisjudged() returns true.
constexpr uint64_t kLeastBytes = 500'000;
constexpr double kMostAgain = 0.05;
constexpr absl::string_view kCubic = "cubic";

std::optional<SentBytes> BytesOf(int socket) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  // Older kernels report too few fields. If there is no round trip, nothing was sent yet.
  const size_t needed = offsetof(tcp_info, tcpi_bytes_retrans) + sizeof(info.tcpi_bytes_retrans);
  if (size < needed || info.tcpi_min_rtt == 0 || info.tcpi_min_rtt == UINT32_MAX) {
    return std::nullopt;
  }
  return SentBytes{.sent = info.tcpi_bytes_sent,
                   .again = info.tcpi_bytes_retrans,
                   .round_trip = absl::Microseconds(info.tcpi_min_rtt)};
}

bool HasBbr(int socket) {
  char name[64] = {};
  socklen_t size = sizeof(name) - 1;
  return getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0 &&
         absl::StartsWith(name, "bbr");
}

}  // namespace

bool IsMisjudged(const SentBytes& bytes) {
  if (bytes.sent < kLeastBytes || bytes.round_trip >= kShortPath) return false;
  return static_cast<double>(bytes.again) > kMostAgain * static_cast<double>(bytes.sent);
}

std::string MendCongestionControl(int socket) {
  const std::optional<SentBytes> bytes = BytesOf(socket);
  if (!bytes.has_value() || !IsMisjudged(*bytes) || !HasBbr(socket)) return "";
  if (setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, kCubic.data(), kCubic.size()) != 0) return "";
  return absl::StrFormat(
      "TCP congestion control: bbr had to send %.0f %% of the bytes again on a path with a round "
      "trip of %s; this connection uses cubic from now on",
      100.0 * static_cast<double>(bytes->again) / static_cast<double>(bytes->sent),
      absl::FormatDuration(bytes->round_trip));
}

}  // namespace lodestar::firewall
