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
  // Returns the version of a bucket whose weights are there.
  virtual Version version(uint32_t bucket) = 0;
};

// Returns all buckets of a job, by index.
std::vector<uint32_t> AllBuckets(const Registration& registration);

class WeightsPull final : public model::WeightsGate, public BaseVersions {
 public:
  // Begins to pull the weights of `buckets`, in this order, into `weights`. In these weights the
  // rounds before `min_round` are over. It keeps trying while the servers are unreachable. Blocks
  // until the device is done with what an earlier pull or push left in `weights`.
  //
  // If weights travel as encoded changes, `shadow` is attached to the registration; else it is
  // null. `trace` may be null. All arguments outlive the pull, transport and clock at least
  // Cancel().
  WeightsPull(const Registration& registration, Round min_round, std::vector<uint32_t> buckets,
              HostMirror* weights, ShadowReplica* shadow, client::ParameterTransport* transport,
              Clock* clock, TraceRecorder* trace = nullptr);
  ~WeightsPull() override;

  // Ends the pull from any thread. What has not arrived will not arrive, and is Cancelled. When
  // this returns the transport is not used any more.
  void Cancel();

  // Has `on_activity` told "pull" when the caller begins to wait for servers, and "compute" when it
  // goes on. Must be called before the first WaitForBlock().
  void TellActivity(std::function<void(absl::string_view)> on_activity) {
    on_activity_ = std::move(on_activity);
  }

  // Blocks until those of the block's buckets that are pulled have arrived. The copy to the device
  // is only queued, before what the compute stream is given next. Must be called by one thread.
  // Errors: those of the transport and the device.
  absl::Status WaitForBlock(int block) override;
  // Does the same as WaitForBlock() for the buckets that have something of the parts.
  absl::Status WaitForParts(int block, absl::Span<const ElementRange> parts) override;
  // Does the same as WaitForBlock() for all blocks.
  absl::Status WaitForAll();

  // Returns the version of a bucket that has been waited for.
  Version version(uint32_t bucket) override;
  // Returns the versions of all buckets, by index. May be called after WaitForAll() of a pull of
  // all buckets.
  std::vector<Version> versions();
  // Returns the pulled buckets that have been waited for, in the order in which they were. Buckets
  // that were waited for together have the order of the parameter space.
  const std::vector<uint32_t>& waited() const { return waited_; }
  // The time that the caller spent waiting for servers.
  absl::Duration blocked() const { return blocked_; }
  // The time that the device had nothing to compute because weights were not there yet, over the
  // blocks that have been waited for. Blocks until the device has them. Errors: those of the
  // device.
  absl::StatusOr<absl::Duration> Exposed() { return exposed_.Total(); }

 private:
  // Pulls what is missing until it has all arrived or another try is of no use. It runs on puller_.
  void Run();
  client::PullSpec MissingBuckets();
  // Whether the bucket may be brought straight to the device.
  bool MayGoToDevice(const Bucket& bucket) const;
  void OnBucket(const client::PulledBucket& pulled);
  // Returns the pulled buckets of the block that have something of the parts, ascending. It leaves
  // out those that have been waited for.
  std::vector<uint32_t> BucketsToWaitFor(int block, absl::Span<const ElementRange> parts) const;
  // Blocks until they have arrived, or nothing will arrive any more.
  absl::Status Await(absl::Span<const uint32_t> buckets) ABSL_LOCKS_EXCLUDED(mutex_);

  const Registration& registration_;
  const Round min_round_;
  const std::vector<uint32_t> buckets_;
  HostMirror* const weights_;
  ShadowReplica* const shadow_;
  client::ParameterTransport* const transport_;
  Clock* const clock_;
  TraceRecorder* const trace_;
  const absl::Time started_at_;
  absl::StatusOr<kernels::EventId> weights_free_;  // the device has no more use for what they were
  std::function<void(absl::string_view)> on_activity_ = [](absl::string_view) {};

  absl::Mutex mutex_;
  std::vector<std::optional<Version>> versions_ ABSL_GUARDED_BY(mutex_);  // by bucket
  std::vector<bool> is_awaited_ ABSL_GUARDED_BY(mutex_);                  // by bucket
  std::vector<bool> arrived_on_device_ ABSL_GUARDED_BY(mutex_);           // by bucket
  int num_awaited_ ABSL_GUARDED_BY(mutex_) = 0;                           // that have not arrived
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  client::PullSession* session_ ABSL_GUARDED_BY(mutex_) = nullptr;

  std::vector<uint32_t> waited_;
  std::vector<bool> on_device_;  // by bucket: the copy is queued
  absl::Duration blocked_;
  ExposedWait exposed_;
  std::thread puller_;
};

}  // namespace lodestar::trainer
