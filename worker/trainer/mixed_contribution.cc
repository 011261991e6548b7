// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/mixed_contribution.h"

namespace lodestar::trainer {

void MixedContribution::Begin(const messages::Registration& registration, Round round,
                              float scale) {
  averaged_.clear();
  for (const params::Bucket& bucket : registration.buckets()) {
    if (layout_->is_averaged(bucket.block)) averaged_.push_back(bucket.index);
  }
  encoded_->Begin(registration, round, scale);
  exact_->Begin(registration, round, scale);
}

void MixedContribution::Commit(absl::Span<const uint32_t> late) {
  // Averaged buckets are sent unencoded, so their residual must not change. Late buckets do not
  // change the residual, so encoded_ gets the averaged buckets as late ones.
  std::vector<uint32_t> not_encoded(late.begin(), late.end());
  not_encoded.insert(not_encoded.end(), averaged_.begin(), averaged_.end());
  encoded_->Commit(not_encoded);
  exact_->Commit(late);
}

}  // namespace lodestar::trainer
