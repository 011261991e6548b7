// SPDX-License-Identifier: Apache-2.0

// ServedSite implements Site for a server in this process. The server must have all parameters of
// the model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "server/host/shard_host.h"
#include "server/rpc/coordinator_strand.h"
#include "server/site/site.h"

namespace lodestar::site {

class ServedSite final : public Site {
 public:
  // `strand` and `host` must outlive the site. If CarryOut() is interrupted after the workers have
  // begun the order, it waits at most `patience` for them. Waiting calls measure time with `clock`.
  ServedSite(rpc::CoordinatorStrand* strand, host::ShardHost* host, absl::Duration patience,
             Clock* clock)
      : strand_(strand), host_(host), patience_(patience), clock_(clock) {}

  absl::StatusOr<messages::DatasetInfo> AwaitData(const Interrupted& is_interrupted) override;
  int StepsOfOrder() override;
  absl::Status PutWeights(absl::Span<const float> weights) override;
  absl::Status GetWeights(absl::Span<float> weights) override;
  absl::StatusOr<rounds::SiteOutcome> CarryOut(const rounds::SiteOrder& order,
                                               const Interrupted& is_interrupted) override;
  void TellUpstream(absl::string_view words) override;
  void OnUpstreamEnd(const absl::Status& outcome) override;

 private:
  // Calls `find` after every change of the coordinator. Also calls `give_up` at intervals. Returns
  // the first value that one of the two returns.
  template <typename Result>
  absl::StatusOr<Result> Await(std::function<std::optional<absl::StatusOr<Result>>(
                                   const coordinator::Coordinator&, absl::Time)>
                                   find,
                               absl::FunctionRef<std::optional<absl::Status>()> give_up);

  rpc::CoordinatorStrand* const strand_;
  host::ShardHost* const host_;
  const absl::Duration patience_;
  Clock* const clock_;
  bool has_new_weights_ = false;  // true: PutWeights() was called since the last order
};

}  // namespace lodestar::site
