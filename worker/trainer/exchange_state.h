// SPDX-License-Identifier: Apache-2.0

// ExchangeState holds what a worker needs for its exchange with the servers from round to round and
// from life to life: the host's copies of the vectors that are sent and received, and the state of
// their encodings.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "worker/trainer/contribution_bytes.h"
#include "worker/trainer/device_timeline.h"
#include "worker/trainer/encoded_contribution.h"
#include "worker/trainer/host_mirror.h"
#include "worker/trainer/shadow_replica.h"

namespace lodestar::trainer {

class ExchangeState {
 public:
  // Pulled weights go into `weights`. Contributions are made from `contribution`, which may be the
  // same vector. Both are f32 in device memory, in the order of the layout. All arguments must
  // outlive the object. `timeline` may be null. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<ExchangeState>> Create(
      const job::JobSpec& job, const params::Layout& layout, kernels::Device* device,
      kernels::Buf weights, kernels::Buf contribution, DeviceTimeline* timeline = nullptr);
  // Returns the device memory that the state needs besides the two vectors. `memory_is_host` is
  // true if the device's memory is host memory. In that case the result includes the main memory
  // for pulls.
  static int64_t DeviceBytes(const job::JobSpec& job, const params::Layout& layout,
                             bool memory_is_host);
  // Returns the pinned host memory that the state needs if the device's memory is not host memory.
  // If `contributes_weights`, the pulled vector is also the pushed one. If `keeps_residual`, the
  // residual is also written to disk.
  static int64_t PinnedBytes(const job::JobSpec& job, const params::Layout& layout,
                             bool contributes_weights, bool keeps_residual);

  HostMirror* weights() { return weights_.get(); }
  ContributionBytes* contribution() { return contribution_.get(); }
  // Returns contribution(), or the part of it that has a residual. Null means no error feedback.
  EncodedContribution* residual() { return residual_; }
  // Returns this worker's copy of the weights as servers and worker decoded them, for jobs that
  // encode pulled weights. If the servers are not those of the last registration, clears the copy.
  // Null means that pulled weights are not encoded.
  ShadowReplica* ShadowFor(const messages::Registration& registration);

 private:
  ExchangeState() = default;

  std::unique_ptr<HostMirror> weights_;
  // The host mirror of the contribution. Null if the whole contribution is encoded, or if the
  // contribution is the weights.
  std::unique_ptr<HostMirror> gradient_;
  std::unique_ptr<ContributionBytes> contribution_;
  EncodedContribution* residual_ = nullptr;  // contribution_, or a part of it.
  std::optional<ShadowReplica> shadow_;
};

}  // namespace lodestar::trainer
