// WeightsPull: all weights of one version on their way into a vector, so that forward starts on
// what it needs first while the rest arrives.
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
#include "common/clock.h"
#include "common/cluster_messages.h"
#include "common/layout.h"
#include "common/trace_recorder.h"
#include "worker/client/bulk_transport.h"
#include "worker/model/model.h"
#include "worker/trainer/exposed_wait.h"
#include "worker/trainer/host_mirror.h"
#include "worker/trainer/shadow_replica.h"

namespace lodestar {

// The versions of the weights that a contribution was computed on.
class BaseVersions {
 public:
  virtual ~BaseVersions() = default;
  // Of a bucket whose weights are there.
  virtual Version version(uint32_t bucket) = 0;
};

// All buckets of a job, by index.
std::vector<uint32_t> AllBuckets(const Registration& registration);

class WeightsPull final : public WeightsGate, public BaseVersions {
 public:
  // Begins to pull the weights of `buckets`, in this order, in which the rounds before `min_round`
  // are over, into `weights`, and keeps trying while the servers are unreachable. Blocks until the
  // device is done with what an earlier pull or push left in `weights`. `shadow`: where weights
  // travel as encoded changes, attached to the registration; else null. `trace` may be null. All
  // arguments outlive the pull, transport and clock at least Cancel().
  WeightsPull(const Registration& registration, Round min_round, std::vector<uint32_t> buckets,
              HostMirror* weights, ShadowReplica* shadow, ParameterTransport* transport,
              Clock* clock, TraceRecorder* trace = nullptr);
  ~WeightsPull() override;

  // Ends it from any thread: what has not arrived will not, and is Cancelled. When this returns the
  // transport is not used any more.
  void Cancel();

  // From now on `on_activity` is told "pull" when the caller begins to wait for servers, and
  // "compute" when it goes on. Before the first WaitForBlock().
  void TellActivity(std::function<void(absl::string_view)> on_activity) {
    on_activity_ = std::move(on_activity);
  }

  // Called by one thread. Blocks until those of the block's buckets that are pulled have arrived;
  // the copy to the device is only queued, before what the compute stream is given next. Errors:
  // those of the transport and the device.
  absl::Status WaitForBlock(int block) override;
  // Of the buckets that have something of the parts.
  absl::Status WaitForParts(int block, absl::Span<const ElementRange> parts) override;
  // For all blocks.
  absl::Status WaitForAll();

  // Of a bucket that has been waited for.
  Version version(uint32_t bucket) override;
  // Of all buckets, by index, after WaitForAll() of a pull of all.
  std::vector<Version> versions();
  // Of those pulled, the ones that have been waited for, in the order in which they were: what
  // waits together in that of the parameter space.
  const std::vector<uint32_t>& waited() const { return waited_; }
  // Time that the caller spent waiting for servers.
  absl::Duration blocked() const { return blocked_; }
  // Time that the device had nothing to compute because weights were not there yet, of those
  // blocks that have been waited for. Blocks until the device has them. Errors: those of the
  // device.
  absl::StatusOr<absl::Duration> Exposed() { return exposed_.Total(); }

 private:
  // Pulls what is missing until it has all arrived or trying again is of no use; runs on puller_.
  void Run();
  PullSpec MissingBuckets();
  // Where the bucket may be brought straight to the device.
  bool MayGoToDevice(const Bucket& bucket) const;
  void OnBucket(const PulledBucket& pulled);
  // Those pulled of the block that have something of the parts, ascending; without those that have
  // been waited for.
  std::vector<uint32_t> BucketsToWaitFor(int block, absl::Span<const ElementRange> parts) const;
  // Until they have arrived, or nothing will any more.
  absl::Status Await(absl::Span<const uint32_t> buckets) ABSL_LOCKS_EXCLUDED(mutex_);

  const Registration& registration_;
  const Round min_round_;
  const std::vector<uint32_t> buckets_;
  HostMirror* const weights_;
  ShadowReplica* const shadow_;
  ParameterTransport* const transport_;
  Clock* const clock_;
  TraceRecorder* const trace_;
  const absl::Time started_at_;
  absl::StatusOr<EventId> weights_free_;  // the device has no more use for what they were
  std::function<void(absl::string_view)> on_activity_ = [](absl::string_view) {};

  absl::Mutex mutex_;
  std::vector<std::optional<Version>> versions_ ABSL_GUARDED_BY(mutex_);  // by bucket
  std::vector<bool> is_awaited_ ABSL_GUARDED_BY(mutex_);                  // by bucket
  std::vector<bool> arrived_on_device_ ABSL_GUARDED_BY(mutex_);           // by bucket
  int num_awaited_ ABSL_GUARDED_BY(mutex_) = 0;                           // that have not arrived
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  PullSession* session_ ABSL_GUARDED_BY(mutex_) = nullptr;

  std::vector<uint32_t> waited_;
  std::vector<bool> on_device_;  // by bucket: the copy is queued
  absl::Duration blocked_;
  ExposedWait exposed_;
  std::thread puller_;
};

}  // namespace lodestar
