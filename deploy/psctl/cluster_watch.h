// Watches a cluster's status across restarts of its server.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "proto/status_service.pb.h"

namespace lodestar {

struct ClusterWatch {
  // Shows a status; false ends the watch.
  using Show = std::function<bool(const v1::ClusterStatus&)>;

  // Calls the function for each status until it returns false (OK) or the stream ends (why).
  std::function<absl::Status(const Show&)> stream;
  Show show;
  // The server does not answer, for that long; said about once a second. False ends the watch.
  std::function<bool(absl::string_view reason, absl::Duration away)> away;
  Clock* clock = nullptr;
};

// Goes on until show() or away() returns false, or until the server has ended with the job: both
// OK. Errors: of a server that has never answered, and what trying again will not mend.
absl::Status WatchAcrossRestarts(const ClusterWatch& watch);

}  // namespace lodestar
