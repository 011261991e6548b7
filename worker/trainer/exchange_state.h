// What a worker keeps from round to round, and from life to life, of its exchange with the servers:
// the host's ends of the vectors that travel, and what belongs to their encodings.
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
  // `weights` is pulled, and `contribution` is pushed and may be `weights`. Both are vectors in
  // device memory, f32, in the order of the layout. They outlive the object, as do the layout and
  // `timeline`, which may be null. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<ExchangeState>> Create(
      const JobSpec& job, const Layout& layout, kernels::Device* device, kernels::Buf weights,
      kernels::Buf contribution, DeviceTimeline* timeline = nullptr);
  // Returns the device memory that it takes beside the vectors. `memory_is_host` is what the
  // device's capabilities say. If it is set, main memory that pulls take is included.
  static int64_t DeviceBytes(const JobSpec& job, const Layout& layout, bool memory_is_host);
  // Returns the pinned host memory that it takes if the device's memory is not the host's. With
  // `contributes_weights` the vector that is pulled is pushed. With `keeps_residual` the residual
  // is kept on disk as well.
  static int64_t PinnedBytes(const JobSpec& job, const Layout& layout, bool contributes_weights,
                             bool keeps_residual);

  HostMirror* weights() { return weights_.get(); }
  ContributionBytes* contribution() { return contribution_.get(); }
  // The part that keeps the residual of error feedback. Null means that there is none.
  EncodedContribution* residual() { return residual_; }
  // Returns the shadow, attached to the registration. Null means that weights travel as they are.
  ShadowReplica* ShadowFor(const Registration& registration);

 private:
  ExchangeState() = default;

  std::unique_ptr<HostMirror> weights_;
  // The mirror of what is contributed. Null means that all of it is encoded, or that it is the
  // weights.
  std::unique_ptr<HostMirror> gradient_;
  std::unique_ptr<ContributionBytes> contribution_;
  EncodedContribution* residual_ = nullptr;  // It is a part of contribution_, or all of it.
  std::optional<ShadowReplica> shadow_;
};

}  // namespace lodestar::trainer
