// SPDX-License-Identifier: Apache-2.0

// WeightsPull pulls all weights of one version into a vector. Forward may start with the weights
// that it needs first, while the other weights still arrive.
#pragma once

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/clock.h"
#include "worker/client/bulk_transport.h"
#include "worker/model/model.h"
#include "worker/trainer/exposed_wait.h"
#include "worker/trainer/host_mirror.h"
#include "worker/trainer/shadow_replica.h"

namespace lodestar::trainer {

// The versions of the weights that a contribution was computed on.
class BaseVersions {
 public:
  virtual ~BaseVersions() = default;
  // Returns the version of a bucket whose weights have arrived.
  virtual Version version(uint32_t bucket) = 0;
};

// Returns all buckets of a job, by index.
std::vector<uint32_t> AllBuckets(const messages::Registration& registration);

class WeightsPull final : public model::WeightsGate, public BaseVersions {
 public:
  // Begins to pull the weights of `buckets`, in this order, into `weights`. The weights include all
  // rounds before `min_round`. The pull is repeated while the servers are unreachable. The
  // constructor blocks until no earlier copy uses the host memory of `weights`.
  //
  // If weights are sent as encoded changes, `shadow` must be attached to the registration;
  // otherwise it must be null. `trace` may be null. `transport` and `clock` must live until
  // Cancel() has returned. The other arguments must outlive the pull.
  WeightsPull(const messages::Registration& registration, Round min_round,
              std::vector<uint32_t> buckets, HostMirror* weights, ShadowReplica* shadow,
              client::ParameterTransport* transport, Clock* clock,
              process::TraceRecorder* trace = nullptr);
  ~WeightsPull() override;

  // Ends the pull. May be called from any thread. Calls that wait for missing buckets return
  // Cancelled. When Cancel() returns, the transport is not used any more.
  void Cancel();

  // Sets a callback. It gets "pull" when the caller begins to wait for servers, and "compute" when
  // the wait is over. Must be called before the first WaitForBlock().
  void TellActivity(std::function<void(absl::string_view)> on_activity) {
    on_activity_ = std::move(on_activity);
  }

  // Blocks until the block's buckets have arrived, as far as this pull includes them. Work that is
  // queued on the compute stream later sees the new weights. Must be called by one thread. Errors:
  // those of the transport and the device.
  absl::Status WaitForBlock(int block) override;
  // Does the same as WaitForBlock() for the block's buckets that overlap one of the parts.
  absl::Status WaitForParts(int block, absl::Span<const params::ElementRange> parts) override;
  // Does the same as WaitForBlock() for all blocks.
  absl::Status WaitForAll();

  // Returns the version of a bucket. Requires: a wait for this bucket has returned.
  Version version(uint32_t bucket) override;
  // Returns the versions of all buckets, by index. Requires: all buckets are pulled, and
  // WaitForAll() has returned.
  std::vector<Version> versions();
  // Returns the buckets for which a wait has returned, in the order of the waits. The buckets of
  // the same wait are in ascending order.
  const std::vector<uint32_t>& waited() const { return waited_; }
  // Returns the time that the caller spent waiting for servers.
  absl::Duration blocked() const { return blocked_; }
  // Returns the time in which the device had nothing to compute because weights had not arrived,
  // summed over all waits so far. Blocks until the device has reached the end of the last wait.
  // Errors: those of the device.
  absl::StatusOr<absl::Duration> Exposed() { return exposed_.Total(); }

 private:
  // Pulls missing buckets until all have arrived, or a retry cannot help. Runs on puller_.
  void Run();
  client::PullSpec MissingBuckets();
  // Returns true if the transport may write the bucket directly to the device.
  bool MayGoToDevice(const params::Bucket& bucket) const;
  void OnBucket(const client::PulledBucket& pulled);
  // Returns the pulled buckets of the block that overlap one of the parts, in ascending order,
  // without the buckets for which a wait has already returned.
  std::vector<uint32_t> BucketsToWaitFor(int block,
                                         absl::Span<const params::ElementRange> parts) const;
  // Blocks until `buckets` have arrived, or the pull has ended without them.
  absl::Status Await(absl::Span<const uint32_t> buckets) ABSL_LOCKS_EXCLUDED(mutex_);

  const messages::Registration& registration_;
  const Round min_round_;
  const std::vector<uint32_t> buckets_;
  HostMirror* const weights_;
  ShadowReplica* const shadow_;
  client::ParameterTransport* const transport_;
  Clock* const clock_;
  process::TraceRecorder* const trace_;
  const absl::Time started_at_;
  // The event after which the device does not use the old weights in weights_ any more.
  absl::StatusOr<kernels::EventId> weights_free_;
  std::function<void(absl::string_view)> on_activity_ = [](absl::string_view) {};

  absl::Mutex mutex_;
  // Version of each bucket that has arrived.
  std::vector<std::optional<Version>> versions_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> is_awaited_ ABSL_GUARDED_BY(mutex_);         // One entry per bucket.
  std::vector<bool> arrived_on_device_ ABSL_GUARDED_BY(mutex_);  // One entry per bucket.
  // Number of the buckets that the caller waits for and that have not arrived.
  int num_awaited_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  client::PullSession* session_ ABSL_GUARDED_BY(mutex_) = nullptr;

  std::vector<uint32_t> waited_;
  std::vector<bool> on_device_;  // One entry per bucket: true if the copy to the device is queued.
  absl::Duration blocked_;
  ExposedWait exposed_;
  std::thread puller_;
};

}  // namespace lodestar::trainer
