// Watches a cluster's status across restarts of its server.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "proto/status_service.pb.h"

namespace lodestar {

struct ClusterWatch {
  // Shows a status. It returns false to end the watch.
  using Show = std::function<bool(const v1::ClusterStatus&)>;

  // Calls the function for each status. It returns OK when the function returns false, and
  // otherwise why the stream has ended.
  std::function<absl::Status(const Show&)> stream;
  Show show;
  // It is called about once a second with how long the server has not answered. It returns false to
  // end the watch.
  std::function<bool(absl::string_view reason, absl::Duration away)> away;
  Clock* clock = nullptr;
};

// Watches until show() or away() returns false, or until the server has ended with the job, and
// then returns OK. Errors: those of a server that has never answered, and those that another try
// will not mend.
absl::Status WatchAcrossRestarts(const ClusterWatch& watch);

}  // namespace lodestar
