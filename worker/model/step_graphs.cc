// SPDX-License-Identifier: Apache-2.0

#include "worker/model/step_graphs.h"

#include "common/runtime/status_macros.h"

namespace lodestar::model {
namespace {

// Maximum number of graphs, so that batches of many sizes do not fill the memory. Steps of further
// sizes run without a graph.
constexpr size_t kMostKeys = 16;

}  // namespace

absl::Status StepGraphs::Run(const Key& key, absl::FunctionRef<absl::Status()> queue_step) {
  const std::tuple<int64_t, kernels::Accumulate, double> parts{key.samples, key.weights, key.scale};
  const auto found = graphs_.find(parts);
  if (found == graphs_.end()) {
    if (graphs_.size() < kMostKeys) graphs_.emplace(parts, std::nullopt);
    return queue_step();
  }
  std::optional<kernels::GraphId>& graph = found->second;
  if (!graph.has_value()) {
    device_->BeginGraph();
    const absl::Status queued = queue_step();
    const absl::StatusOr<kernels::GraphId> recorded = device_->EndGraph();
    RETURN_IF_ERROR(queued);
    RETURN_IF_ERROR(recorded.status());
    graph = *recorded;
  }
  device_->LaunchGraph(*graph);
  return absl::OkStatus();
}

}  // namespace lodestar::model
