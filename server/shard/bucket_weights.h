// The numbers of one bucket: weights, optimizer state, mean of a round. Knows nothing of workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/messages/contribution.h"
#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "common/runtime/ids.h"
#include "server/optimizer/momentum_correction.h"
#include "server/optimizer/optimizer.h"
#include "server/shard/bucket_handles.h"
#include "server/shard/bucket_shadow.h"
#include "server/shard/contribution_mean.h"
#include "server/shard/page.h"
#include "server/shard/shard_state.h"

namespace lodestar::shard {

// The class is not thread-safe. Apply() may run without the owner's lock if nothing is lent
// meanwhile. What was lent before stays as it was (copy on write).
class BucketWeights {
 public:
  struct Part {
    ElementRange range;
    // The contributions are values, and no part of a gradient. They travel as they are.
    bool is_averaged = false;
  };
  // The last three outlive the object.
  BucketWeights(const Part& part, const JobSpec& job, const Layout& layout,
                const optimizer::Optimizer& optimizer, PagePool& pages);

  int64_t num_elements() const { return range_.size(); }
  ElementRange range() const { return range_; }
  bool has_weights() const { return weights_ != nullptr; }
  const float* data() const { return weights_->data(); }

  // Returns space to write the first weights into, before any thread reads them. The state starts
  // as zeros. Errors: ResourceExhausted without memory for it.
  absl::StatusOr<absl::Span<float>> InitialWeights();
  // Takes `weights`, [num_elements()], in place of those there are; optimizer state stays. Errors:
  // InvalidArgument if they are not finite, ResourceExhausted: nothing has changed then.
  absl::Status Replace(absl::Span<const float> weights);
  // Errors: InvalidArgument if range or number of state vectors differ; ResourceExhausted.
  absl::Status Restore(const BucketState& state);

  // The methods below go on where the system gives no memory. A contribution or update without a
  // page is left out of the mean or of the weights, which stay as they were. The pool has told of
  // it then.

  // Returns the mean of what the open round contributes.
  ContributionMean& mean() { return *mean_; }
  // Adds to the mean. Weights are not multiplied by share.scale, which is not in share.factor then:
  // their change is.
  void Add(ContributionKind kind, Encoding encoding, const std::byte* values,
           const MeanShare& share);
  // `clip` is how much of the way from the weights to the mean, which is one of weights, counts.
  void FinishMean(float rescale, float clip);
  // Returns the square sums of the mean gradient, once it is finished, one per segment. They are
  // zeros if nothing was added.
  std::vector<double> SegmentSquareSums() const;

  // Makes one update with the mean, which is finished and given back. Without an update the mean is
  // only dropped. Returns, as the next three do, whether weights and state are finite after it. The
  // shadow of workers that take encoded changes moves along, to version call.step.
  bool ApplyMean(const optimizer::OptimizerCall& call, bool has_update);
  // Add() of `last`, where there is one and it is no weights with another scale than 1,
  // FinishMean() without a clip and ApplyMean() with an update, in one pass.
  bool FinishAndApply(const optimizer::OptimizerCall& call,
                      const std::optional<LastContribution>& last, float rescale);
  // Makes one update with a contribution alone, corrected by the momentum if the job wants that. If
  // the contribution is weights, the way from here to them counts.
  bool ApplyAlone(const optimizer::OptimizerCall& call, ContributionKind kind, Encoding encoding,
                  const std::byte* contribution);
  // In one more pass over them.
  bool AreFinite() const;

  // Sets what workers that take encoded changes have to the weights as they are. These weights come
  // from somewhere else than an update.
  void ResetShadow(Version version);
  // Sets it to the weights as they were at that version: `elements` are those of LendShadow() then.
  // Must follow Restore().
  void RestoreShadow(const std::byte* elements, Version version);
  // Returns null where weights travel as they are.
  std::shared_ptr<const Page> LendShadow() const;

  std::shared_ptr<const Page> LendWeights() const { return Page::Lend(weights_); }
  PublishedBucket Lend(const ReadView& view, Version version) const;
  // Weights and optimizer state.
  void LendTo(BucketState& state) const;

 private:
  // A Correction is what an update corrects by, and where.
  struct Correction {
    optimizer::MomentumCorrection rule;
    std::vector<ElementRange> parts;
  };

  // Makes one update with `gradient`, [num_elements()]. Without a gradient (null) the weights stay.
  bool Apply(const optimizer::OptimizerCall& call, const float* gradient);
  // Begins the same in parts, in order and each from a multiple of kWholeBlocks. Returns the page
  // where new weights are written, after state that is lent has been copied. Null means that there
  // is no memory for them.
  std::shared_ptr<Page> BeginUpdate(const optimizer::OptimizerCall& call);
  // Does the part from `begin`.
  bool UpdatePart(const optimizer::OptimizerCall& call, int64_t begin,
                  absl::Span<const float> gradient, Page& out);
  // Ends the update when all parts are there, or there was nothing to begin with (null).
  void EndUpdate(const optimizer::OptimizerCall& call, std::shared_ptr<Page> out);
  bool ApplyAlone(const optimizer::OptimizerCall& call, const float* gradient);
  // Returns the corrected gradient. Null means that it stays as it is.
  std::shared_ptr<Page> Corrected(const optimizer::OptimizerCall& call, const float* gradient);
  absl::Status OutOfMemory() const;
  // Pages for the weights and the optimizer state, in place of those there are.
  absl::Status AllocateAll();

  const ElementRange range_;
  const bool is_averaged_;
  const Layout& layout_;
  const optimizer::Optimizer& optimizer_;
  PagePool& pages_;
  const int num_state_vectors_;
  std::vector<ElementRange> decay_;  // relative to the bucket's start
  std::shared_ptr<Page> weights_;
  std::vector<std::shared_ptr<Page>> state_;
  std::unique_ptr<ContributionMean> mean_;
  std::optional<Correction> correction_;
  std::optional<BucketShadow> shadow_;  // where weights travel as encoded changes
};

}  // namespace lodestar::shard
