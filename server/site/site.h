// A site: a server with its workers that is one worker of another server. Here its two halves meet:
// the server, which has rounds carried out by its workers and has their weights, and the uplink,
// which is the worker of the servers upstream and says what those rounds are. Neither knows what
// the other is made of.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/messages/cluster_messages.h"
#include "server/coordinator/rounds/site_order.h"

namespace lodestar::site {

// The server's half, for one uplink. Calls block; all but AwaitData() and TellUpstream() come one
// at a time. Errors of each also: Unavailable or Cancelled once the server stops.
class Site {
 public:
  // Asked now and then by calls that wait.
  using Interrupted = std::function<bool()>;
  virtual ~Site() = default;

  // Waits until there are as many members as a round needs. Their data set. Errors: Cancelled once
  // interrupted. From any thread.
  virtual absl::StatusOr<DatasetInfo> AwaitData(const Interrupted& is_interrupted) = 0;
  // Local steps of an order of training, neither more nor less.
  virtual int StepsOfOrder() = 0;
  // Weights for the next order, f32 [parameters of the model]; optimizer state stays. Waits for the
  // end of a round whose order was withdrawn. Errors: InvalidArgument if they are not finite;
  // ResourceExhausted.
  virtual absl::Status PutWeights(absl::Span<const float> weights) = 0;
  // Writes the weights after the last order into `weights`.
  virtual absl::Status GetWeights(absl::Span<float> weights) = 0;
  // Waits until members have carried out the order. If the wait is interrupted, an order that no
  // member has begun is withdrawn, and one that is under way is given its time. Errors: Cancelled
  // if that is not enough, or if the site hands out no work any more; the failure of the job.
  virtual absl::StatusOr<SiteOutcome> CarryOut(const SiteOrder& order,
                                               const Interrupted& is_interrupted) = 0;
  // What keeps the uplink from bringing an order, for people; empty: nothing. From any thread.
  virtual void TellUpstream(absl::string_view words) = 0;
  // The uplink has ended by itself: OK: the job upstream is over.
  virtual void OnUpstreamEnd(const absl::Status& outcome) = 0;
};

// The other half. It works from its construction on, and ends at once with its destruction, before
// which its site must answer all calls.
class Uplink {
 public:
  virtual ~Uplink() = default;
  // See Site::TellUpstream(). Thread-safe.
  virtual std::string Standing() = 0;
  // Hands in what there is and leaves the servers upstream. Blocks until it has left or has given
  // up on them, or is interrupted.
  virtual void Leave(const Site::Interrupted& is_interrupted) = 0;
};

}  // namespace lodestar::site
