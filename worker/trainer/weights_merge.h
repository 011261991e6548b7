// SPDX-License-Identifier: Apache-2.0

// WeightsMerge combines a worker's own weights with the servers' weights after a round. It is for
// workers that continue to compute during the round's exchange. There is one class per rule.
// MakeWeightsMerge() chooses the class.
//
// It uses three vectors in device memory, as long as the parameter space. `local` is the model's
// parameters. `global` has the newest weights from the servers. `contributed` is the last
// contribution, which may be overwritten once the round's weights have arrived. All work is queued
// on the compute stream. A round exchanges only the ranges of one fragment.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "kernels/device.h"

namespace lodestar::trainer {

class WeightsMerge {
 public:
  struct Vectors {
    kernels::Device* device = nullptr;
    kernels::Buf local;
    kernels::Buf global;
    kernels::Buf contributed;
  };
  using Ranges = absl::Span<const params::ElementRange>;

  virtual ~WeightsMerge() = default;

  // Returns the vector from which `local` is subtracted to get a pseudo-gradient.
  virtual kernels::Buf origin() const = 0;
  // Called when the worker begins again from the servers' weights. `local` is then equal to
  // `global`.
  virtual void Begin() = 0;
  // Called when these ranges of `contributed` are being sent. `share` is the number of this
  // worker's samples, divided by that of all contributions to the round. Not set means that this
  // worker contributes nothing.
  virtual void OnContributed(Ranges ranges, std::optional<double> share) = 0;
  // Called when these ranges of `global` have the weights after the round.
  virtual void OnArrived(Ranges ranges) = 0;
};

// Makes the merge of the job. Requires: job::DefersContributions(job). Errors: ResourceExhausted.
absl::StatusOr<std::unique_ptr<WeightsMerge>> MakeWeightsMerge(
    const job::JobSpec& job, const WeightsMerge::Vectors& vectors);

// Returns how many vectors the merge needs in addition to those in Vectors. Each is as long as the
// parameter space.
int NumMergeVectors(const job::JobSpec& job);

}  // namespace lodestar::trainer
