// What a worker keeps from round to round, and from life to life, of its exchange with the servers:
// the host's ends of the vectors that travel, and what belongs to their encodings.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "common/cluster_messages.h"
#include "common/job_spec.h"
#include "common/layout.h"
#include "worker/trainer/contribution_bytes.h"
#include "worker/trainer/device_timeline.h"
#include "worker/trainer/encoded_contribution.h"
#include "worker/trainer/host_mirror.h"
#include "worker/trainer/shadow_replica.h"

namespace lodestar {

class ExchangeState {
 public:
  // Vectors in device memory: `weights`, which is pulled, and `contribution`, which is pushed and
  // may be `weights`. Both are f32, in the order of the layout, and outlive the object; so do the
  // layout and `timeline`, which may be null. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<ExchangeState>> Create(const JobSpec& job,
                                                               const Layout& layout, Device* device,
                                                               Buf weights, Buf contribution,
                                                               DeviceTimeline* timeline = nullptr);
  // Device memory that it takes beside the vectors; `memory_is_host`: as the device's capabilities
  // say, and then with what pulls take of main memory.
  static int64_t DeviceBytes(const JobSpec& job, const Layout& layout, bool memory_is_host);
  // Pinned host memory where the device's memory is not the host's. `contributes_weights`: what is
  // pushed is the vector that is pulled. `keeps_residual`: on disk, too.
  static int64_t PinnedBytes(const JobSpec& job, const Layout& layout, bool contributes_weights,
                             bool keeps_residual);

  HostMirror* weights() { return weights_.get(); }
  ContributionBytes* contribution() { return contribution_.get(); }
  // What keeps the residual of error feedback; null: there is none.
  EncodedContribution* residual() { return residual_; }
  // Attached to the registration; null where weights travel as they are.
  ShadowReplica* ShadowFor(const Registration& registration);

 private:
  ExchangeState() = default;

  std::unique_ptr<HostMirror> weights_;
  // Of what is contributed; null: all of it is encoded, or the weights.
  std::unique_ptr<HostMirror> gradient_;
  std::unique_ptr<ContributionBytes> contribution_;
  EncodedContribution* residual_ = nullptr;  // part of contribution_, or all of it
  std::optional<ShadowReplica> shadow_;
};

}  // namespace lodestar
