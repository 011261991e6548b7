// SPDX-License-Identifier: Apache-2.0

// A site is a server with workers of its own. To other servers, the servers upstream, the site is
// one worker. This file has the interfaces of the site's two parts:
// - The Site runs rounds on the site's own workers, and reads and writes their weights.
// - The Uplink is a worker of the servers upstream. It tells the Site which rounds to run.
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

// A Site is the part on the site's server. It serves one uplink. Calls block. Only AwaitData() and
// TellUpstream() may be called while another call runs. Every call may also return Unavailable or
// Cancelled if the server stops.
class Site {
 public:
  // Function that a waiting call calls at intervals. If it returns true, the waiting call must end
  // soon.
  using Interrupted = std::function<bool()>;
  virtual ~Site() = default;

  // Waits until there are as many members as a round needs. Returns their data set. May be called
  // from any thread. Errors: Cancelled (interrupted).
  virtual absl::StatusOr<messages::DatasetInfo> AwaitData(const Interrupted& is_interrupted) = 0;
  // Returns the number of local steps that every training order must have.
  virtual int StepsOfOrder() = 0;
  // Sets the weights for the next order, f32 [parameters of the model]. Optimizer state stays.
  // Waits for the end of a round whose order was withdrawn. Errors: InvalidArgument (weights are
  // not finite); ResourceExhausted.
  virtual absl::Status PutWeights(absl::Span<const float> weights) = 0;
  // Copies the weights that the site has after its last finished order into `weights`.
  virtual absl::Status GetWeights(absl::Span<float> weights) = 0;
  // Blocks until members have carried out the order. If the call is interrupted before a member has
  // begun the order, withdraws the order. If a member has begun it, waits some time longer. Errors:
  // Cancelled (the order was withdrawn, that time was not enough, or the site hands out no more
  // work); the failure of the job.
  virtual absl::StatusOr<rounds::SiteOutcome> CarryOut(const rounds::SiteOrder& order,
                                                       const Interrupted& is_interrupted) = 0;
  // Stores the reason why the uplink gives no orders at present, for messages to operators. An
  // empty text means that nothing prevents orders. May be called from any thread.
  virtual void TellUpstream(absl::string_view words) = 0;
  // Reports that the uplink has ended by itself. OK means that the job upstream is over.
  virtual void OnUpstreamEnd(const absl::Status& outcome) = 0;
};

// An Uplink is the worker of the servers upstream. Its constructor starts the work. Its destructor
// ends it at once. Before that, the site must be stopped, so that all calls of the uplink return.
class Uplink {
 public:
  virtual ~Uplink() = default;
  // Returns the text that the uplink passes to Site::TellUpstream(). Thread-safe.
  virtual std::string Standing() = 0;
  // Hands in the results that it has, and leaves the servers upstream. Blocks until it has left,
  // has given up, or is interrupted.
  virtual void Leave(const Site::Interrupted& is_interrupted) = 0;
};

}  // namespace lodestar::site
