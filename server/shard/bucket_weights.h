// SPDX-License-Identifier: Apache-2.0

// BucketWeights holds the numbers of one bucket: weights, optimizer state and the mean of a round.
// It knows nothing of workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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

// The class is not thread-safe. Apply() may run without the owner's lock if no page is lent
// meanwhile. Pages that were lent before do not change (copy on write).
class BucketWeights {
 public:
  struct Part {
    params::ElementRange range;
    // True: contributions have values to average, and not gradients. They are sent without
    // encoding.
    bool is_averaged = false;
  };
  // `layout`, `optimizer` and `pages` must outlive the object.
  BucketWeights(const Part& part, const job::JobSpec& job, const params::Layout& layout,
                const optimizer::Optimizer& optimizer, PagePool& pages);

  int64_t num_elements() const { return range_.size(); }
  params::ElementRange range() const { return range_; }
  bool has_weights() const { return weights_ != nullptr; }
  const float* data() const { return weights_->data(); }

  // Returns space for the first weights, to be written before any thread reads them. The optimizer
  // state starts as the vectors of InitialState(), and as zeros without them. Errors:
  // ResourceExhausted (no memory).
  absl::StatusOr<absl::Span<float>> InitialWeights();
  // Returns space for the n-th vector of the state that comes with the next InitialWeights().
  // Requires: the optimizer has that vector. Errors: ResourceExhausted (no memory).
  absl::StatusOr<absl::Span<float>> InitialState(uint32_t state_vector);
  // Drops the vectors of InitialState() since the last InitialWeights().
  void DropInitialState() { initial_state_.clear(); }
  // Replaces the weights by `weights`, [num_elements()]. Optimizer state stays. Nothing changes on
  // an error. Errors: InvalidArgument (weights are not finite); ResourceExhausted (no memory).
  absl::Status Replace(absl::Span<const float> weights);
  // Sets the weights and the optimizer state. Errors: InvalidArgument (range or number of state
  // vectors differ); ResourceExhausted (no memory).
  absl::Status Restore(const BucketState& state);

  // The methods below go on if the system gives no memory. A contribution without a page is left
  // out of the mean. An update without a page leaves the weights as they were. In both cases the
  // pool has reported the lack of memory.

  // Returns the mean of the contributions to the open round.
  ContributionMean& mean() { return *mean_; }
  // Adds a contribution to the mean. If the contribution is weights, share.scale multiplies their
  // difference from the current weights, and share.factor does not include share.scale.
  void Add(messages::ContributionKind kind, params::Encoding encoding, const std::byte* values,
           const MeanShare& share);
  // Finishes the mean. If contributions are weights, the result is the current weights plus `clip`
  // times the difference of the mean from them.
  void FinishMean(float rescale, float clip);
  // Returns the square sums of the mean gradient, one per segment. Must follow FinishMean(). They
  // are zeros if nothing was added.
  std::vector<double> SegmentSquareSums() const;

  // Makes one update with the finished mean, and gives the mean's pages back. If `has_update` is
  // false, the mean is only dropped. The shadow for workers that take encoded changes advances to
  // version call.step. Returns true if weights and state are finite afterwards. The next three
  // methods return the same.
  bool ApplyMean(const optimizer::OptimizerCall& call, bool has_update);
  // Does Add() of `last`, FinishMean() without a clip, and ApplyMean() with an update, in one pass.
  // `last` may be not set. It must not be weights with a scale other than 1.
  bool FinishAndApply(const optimizer::OptimizerCall& call,
                      const std::optional<LastContribution>& last, float rescale);
  // Makes one update with a contribution alone, corrected by the momentum if the job wants that. If
  // the contribution is weights, the update uses their difference from the current weights.
  bool ApplyAlone(const optimizer::OptimizerCall& call, messages::ContributionKind kind,
                  params::Encoding encoding, const std::byte* contribution);
  // Checks weights and state, in one more pass over them.
  bool AreFinite() const;

  // Sets the shadow to the current weights. Call if these weights do not come from an update.
  void ResetShadow(Version version);
  // Restores the shadow of that version. `elements` are those of the page that LendShadow()
  // returned for that version. Must follow Restore().
  void RestoreShadow(const std::byte* elements, Version version);
  // Returns the shadow. Returns null if weights travel without encoding.
  std::shared_ptr<const Page> LendShadow() const;

  std::shared_ptr<const Page> LendWeights() const { return Page::Lend(weights_); }
  // Requires: the optimizer has at least view.state_vector state vectors.
  PublishedBucket Lend(const ReadView& view, Version version) const;
  // Puts weights and optimizer state into `state`, without a copy.
  void LendTo(BucketState& state) const;

 private:
  // A Correction says by which rule an update is corrected, and in which parts.
  struct Correction {
    optimizer::MomentumCorrection rule;
    std::vector<params::ElementRange> parts;
  };

  // Makes one update with `gradient`, [num_elements()]. If `gradient` is null, the weights stay.
  bool Apply(const optimizer::OptimizerCall& call, const float* gradient);
  // Begins an update in parts, which must come in order and each begin at a multiple of
  // kWholeBlocks. Copies optimizer state that is lent. Returns the page for the new weights.
  // Returns null if there is no memory for the page.
  std::shared_ptr<Page> BeginUpdate(const optimizer::OptimizerCall& call);
  // Updates the part that begins at `begin`.
  bool UpdatePart(const optimizer::OptimizerCall& call, int64_t begin,
                  absl::Span<const float> gradient, Page& out);
  // Ends the update when all parts are done. `out` is the result of BeginUpdate(). Null means that
  // no part was updated.
  void EndUpdate(const optimizer::OptimizerCall& call, std::shared_ptr<Page> out);
  bool ApplyAlone(const optimizer::OptimizerCall& call, const float* gradient);
  // Returns the corrected gradient. Null means that no correction is needed, or that there is no
  // memory for it. Then the gradient is used as it is.
  std::shared_ptr<Page> Corrected(const optimizer::OptimizerCall& call, const float* gradient);
  absl::Status OutOfMemory() const;
  // Allocates pages for the weights and the optimizer state, in place of the current pages.
  absl::Status AllocateAll();

  const params::ElementRange range_;
  const bool is_averaged_;
  const params::Layout& layout_;
  const optimizer::Optimizer& optimizer_;
  PagePool& pages_;
  const int num_state_vectors_;
  std::vector<params::ElementRange> decay_;  // relative to the bucket's start
  std::shared_ptr<Page> weights_;
  std::vector<std::shared_ptr<Page>> state_;
  // Vectors of InitialState(), by their number.
  std::map<uint32_t, std::shared_ptr<Page>> initial_state_;
  std::unique_ptr<ContributionMean> mean_;
  std::optional<Correction> correction_;
  std::optional<BucketShadow> shadow_;  // set if weights travel as encoded changes
};

}  // namespace lodestar::shard
