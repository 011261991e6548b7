// SPDX-License-Identifier: Apache-2.0

// A site is a server with its workers that acts as one worker of other servers, the servers
// upstream. This file has the interfaces of its two halves. The Site makes the workers carry out
// rounds, and has their weights. The Uplink acts as the worker of the servers upstream, and says
// what the rounds are. Neither half knows how the other works.
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

// A Site is the server's half, for one uplink. Calls block. All calls except AwaitData() and
// TellUpstream() come one at a time. Errors of each call also: Unavailable or Cancelled (the server
// stops).
class Site {
 public:
  // Calls that wait check it now and then. If it returns true, they must end soon.
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
  // Writes the weights after the last order into `weights`.
  virtual absl::Status GetWeights(absl::Span<float> weights) = 0;
  // Blocks until members have carried out the order. If it is interrupted, an order that no member
  // has begun is withdrawn, and an order under way gets some more time. Errors: Cancelled (that
  // time was not enough, or the site hands out no more work); the failure of the job.
  virtual absl::StatusOr<rounds::SiteOutcome> CarryOut(const rounds::SiteOrder& order,
                                                       const Interrupted& is_interrupted) = 0;
  // Reports, for operators, why the uplink gives no order at present. Empty means that nothing
  // prevents it. May be called from any thread.
  virtual void TellUpstream(absl::string_view words) = 0;
  // Reports that the uplink has ended by itself. OK means that the job upstream is over.
  virtual void OnUpstreamEnd(const absl::Status& outcome) = 0;
};

// An Uplink is the worker of the servers upstream. It works from its construction on, and ends at
// once with its destruction. Before the destruction the site must be stopped, so that all calls of
// the uplink return.
class Uplink {
 public:
  virtual ~Uplink() = default;
  // Returns the text of Site::TellUpstream(). Thread-safe.
  virtual std::string Standing() = 0;
  // Hands in the results that it has, and leaves the servers upstream. Blocks until it has left,
  // has given up, or is interrupted.
  virtual void Leave(const Site::Interrupted& is_interrupted) = 0;
};

}  // namespace lodestar::site
