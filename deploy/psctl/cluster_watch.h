// SPDX-License-Identifier: Apache-2.0

// Watches a cluster's status across restarts of its server.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "proto/status_service.pb.h"

namespace lodestar::psctl {

struct ClusterWatch {
  // A function that shows a status. Returns false to end the watch.
  using Show = std::function<bool(const v1::ClusterStatus&)>;

  // Opens a stream and calls `show` for each status. Returns OK once `show` returns false, and
  // otherwise the reason why the stream has ended.
  std::function<absl::Status(const Show&)> stream;
  Show show;
  // Called about once a second while the server does not answer, with the time since its last
  // answer. Returns false to end the watch.
  std::function<bool(absl::string_view reason, absl::Duration away)> away;
  Clock* clock = nullptr;
};

// Watches until show() or away() returns false, or until the stream ends after the job is over.
// Returns OK in these cases. Errors:
// - The first error, if no server has ever answered.
// - Later errors that another try will not solve.
absl::Status WatchAcrossRestarts(const ClusterWatch& watch);

}  // namespace lodestar::psctl
