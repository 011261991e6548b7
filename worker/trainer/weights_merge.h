// WeightsMerge says what a worker makes of its own weights and those that the servers have after a
// round, if it goes on computing while the round's exchange is under way. There is one class per
// rule, chosen in MakeWeightsMerge().
//
// Three vectors in device memory take part, as long as the parameter space: `local`, the model's
// parameters; `global`, the newest weights that have come from the servers; and `contributed`, what
// was contributed last, which is not needed any more when the round's weights come. Everything is
// queued on the compute stream, over the ranges of the fragment that a round exchanges.
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
  using Ranges = absl::Span<const ElementRange>;

  virtual ~WeightsMerge() = default;

  // Contributions are the change from this vector: origin() - local.
  virtual kernels::Buf origin() const = 0;
  // Is called when a life begins, and local and global are the same.
  virtual void Begin() = 0;
  // Is called when what `contributed` has in these ranges is on its way. `share` is this worker's
  // part of all samples that the round's contributions stand for. Nothing means that it contributes
  // nothing.
  virtual void OnContributed(Ranges ranges, std::optional<double> share) = 0;
  // Is called when `global` has these ranges as they are after the round.
  virtual void OnArrived(Ranges ranges) = 0;
};

// Makes the merge of the job, for which DefersContributions() holds. Errors: ResourceExhausted.
absl::StatusOr<std::unique_ptr<WeightsMerge>> MakeWeightsMerge(
    const JobSpec& job, const WeightsMerge::Vectors& vectors);

// Returns the number of vectors of the parameters' size that it takes beside those three.
int NumMergeVectors(const JobSpec& job);

}  // namespace lodestar::trainer
