// SPDX-License-Identifier: Apache-2.0

#include "server/limits/refusal_counts.h"

namespace lodestar::limits {

absl::string_view LimitReachedName(LimitReached limit) {
  switch (limit) {
    case LimitReached::kRegistrations:
      return "too many registrations";
    case LimitReached::kLargeRegistrations:
      return "registrations too large, or too many large ones at a time";
    case LimitReached::kHeldRegistrations:
      return "too many registrations that wait";
    case LimitReached::kHeldConnections:
      return "too many connections that are held";
    case LimitReached::kNames:
      return "names too long";
    case LimitReached::kLayouts:
      return "layouts refused";
    case LimitReached::kStreams:
      return "too many pushes and pulls";
    case LimitReached::kMessages:
      return "chunks too large";
    case LimitReached::kPullRequests:
      return "pulls of too many buckets";
    case LimitReached::kFloods:
      return "connections ended for floods of HTTP/2";
    case LimitReached::kSlowPeers:
      return "streams without progress ended";
    case LimitReached::kSharedMemory:
      return "too much shared memory";
    case LimitReached::kWatches:
      return "too many that look at the status";
    case LimitReached::kEnrolments:
      return "too many enrolments at a time";
    case LimitReached::kFailedEnrolments:
      return "enrolments failed";
    case LimitReached::kHandshakes:
      return "handshakes of TLS failed";
    case LimitReached::kDeniedCalls:
      return "calls denied by role or certificate";
    case LimitReached::kForeignOrders:
      return "orders from foreign pages";
  }
  return "";
}

}  // namespace lodestar::limits
