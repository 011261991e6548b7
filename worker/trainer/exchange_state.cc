// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/exchange_state.h"

#include <utility>

#include "common/runtime/status_macros.h"
#include "worker/trainer/exact_contribution.h"
#include "worker/trainer/mixed_contribution.h"

namespace lodestar::trainer {

absl::StatusOr<std::unique_ptr<ExchangeState>> ExchangeState::Create(
    const job::JobSpec& job, const params::Layout& layout, kernels::Device* device,
    kernels::Buf weights, kernels::Buf contribution, DeviceTimeline* timeline) {
  auto state = std::unique_ptr<ExchangeState>(new ExchangeState);
  ASSIGN_OR_RETURN(state->weights_, HostMirror::Create(device, weights, timeline));
  if (job.push_encoding != params::Encoding::kFp32) {
    ASSIGN_OR_RETURN(std::unique_ptr<EncodedContribution> encoded,
                     EncodedContribution::Create(job, layout, device, contribution, timeline));
    if (encoded->has_residual()) state->residual_ = encoded.get();
    state->contribution_ = std::move(encoded);
    if (layout.has_averaged()) {
      ASSIGN_OR_RETURN(state->gradient_, HostMirror::Create(device, contribution, timeline));
      state->contribution_ = std::make_unique<MixedContribution>(
          &layout, std::move(state->contribution_),
          std::make_unique<ExactContribution>(state->gradient_.get()));
    }
  } else if (contribution.data == weights.data) {
    state->contribution_ = std::make_unique<ExactContribution>(state->weights_.get());
  } else {
    ASSIGN_OR_RETURN(state->gradient_, HostMirror::Create(device, contribution, timeline));
    state->contribution_ = std::make_unique<ExactContribution>(state->gradient_.get());
  }
  if (job.pull_encoding != params::Encoding::kFp32) state->shadow_.emplace(job.pull_encoding);
  return state;
}

int64_t ExchangeState::DeviceBytes(const job::JobSpec& job, const params::Layout& layout,
                                   bool memory_is_host) {
  // The shadow replica is always in main memory. So it counts only if the device's memory is main
  // memory.
  const int64_t of_pulls =
      memory_is_host ? ShadowReplica::Bytes(job.pull_encoding, layout.num_elements()) : 0;
  if (job.push_encoding == params::Encoding::kFp32) return of_pulls;
  return of_pulls + EncodedContribution::DeviceBytes(job, layout, memory_is_host);
}

int64_t ExchangeState::PinnedBytes(const job::JobSpec& job, const params::Layout& layout,
                                   bool contributes_weights, bool keeps_residual) {
  const int64_t vector_bytes = layout.num_elements() * static_cast<int64_t>(sizeof(float));
  if (job.push_encoding != params::Encoding::kFp32) {
    return vector_bytes + EncodedContribution::PinnedBytes(job, layout, keeps_residual) +
           (layout.has_averaged() ? vector_bytes : 0);
  }
  return contributes_weights ? vector_bytes : 2 * vector_bytes;
}

ShadowReplica* ExchangeState::ShadowFor(const messages::Registration& registration) {
  if (!shadow_.has_value()) return nullptr;
  shadow_->Attach(registration);
  return &*shadow_;
}

}  // namespace lodestar::trainer
