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
      return "too many waiting registrations";
    case LimitReached::kHeldConnections:
      return "too many connections held open by workers";
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
      return "connections ended because of HTTP/2 floods";
    case LimitReached::kSlowPeers:
      return "streams ended because they made no progress";
    case LimitReached::kSharedMemory:
      return "too much shared memory";
    case LimitReached::kWatches:
      return "too many readers of the status";
    case LimitReached::kEnrolments:
      return "too many enrolments at a time";
    case LimitReached::kFailedEnrolments:
      return "enrolments failed";
    case LimitReached::kHandshakes:
      return "failed TLS handshakes";
    case LimitReached::kDeniedCalls:
      return "calls denied by role or certificate";
    case LimitReached::kForeignOrders:
      return "orders from web pages of other origins";
  }
  return "";
}

}  // namespace lodestar::limits
