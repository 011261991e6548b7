// SPDX-License-Identifier: Apache-2.0

// WorkerSession is the implementation of a worker of the C API. It runs the worker on a thread of
// its own, and has the vectors and the steps that worker and program share.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/job/proposed_settings.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "worker/capi/caller_workload.h"
#include "worker/capi/step_handoff.h"
#include "worker/worker.h"
#include "worker/worker_entry.h"

namespace lodestar::capi {

// The place of a worker among the living workers of its job.
struct WorkerPlace {
  int64_t index = 0;      // see Registration::index
  int64_t count = 0;      // number of living workers
  bool is_first = false;  // true if its index is the lowest
};

// Thread-safe where the C API says so. lodestar_worker.h documents each method and its errors.
class WorkerSession {
 public:
  WorkerSession();
  // Leaves the job, if Leave() was not called.
  ~WorkerSession();

  // Errors: FailedPrecondition (if the worker was started in the parent process, from which this
  // process was forked). In that case the worker's threads are not in this process.
  absl::Status CheckProcess() const;

  absl::Status Set(absl::string_view setting, absl::string_view value);
  absl::Status Propose(absl::string_view setting, absl::string_view value);
  absl::Status AddTensor(params::TensorSpec tensor);
  absl::Status SetData(const messages::DatasetInfo& data);
  absl::Status Allocate() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the layout of the vectors, which is not set before Allocate().
  const std::optional<params::Layout>& layout() const { return layout_; }
  CallerVectors* vectors() { return &vectors_; }
  // Returns the number of updates that the newest weights from the servers have had. -1 means that
  // no weights have come, or that tensors have different numbers of updates.
  int64_t weights_version() const { return weights_version_; }
  absl::Status SetInitialState(int state_vector, const float* state, int64_t num_updates)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status PullState(int state_vector, float* state, int64_t* updates, bool* is_newer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status KeepState(int num_vectors) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the loss of the job at its last evaluation. `heldout` is not set if there was no
  // evaluation.
  job::JobLoss Evaluation() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status Start();
  // Blocks until the worker has registered. Errors: InvalidArgument (if there is no such setting);
  // the error that the worker has ended with before it registered.
  absl::StatusOr<std::string> JobSetting(absl::string_view setting) ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until the worker has registered. Errors: Unimplemented (if the servers are of an earlier
  // release); the error that the worker has ended with before it registered.
  absl::StatusOr<WorkerPlace> Place() ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until JobSetting() and Place() would not block, but at most for `timeout`. Returns true
  // if they would not block.
  bool AwaitJob(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // AwaitNews() does the same for Next(). AwaitNews() and Next() also tell the worker that the
  // program has written its initial weights.
  bool AwaitNews(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::optional<HandedStep>> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  // Does the same as StepHandoff::Extend(). Errors: also InvalidArgument (if the job has local
  // steps).
  absl::StatusOr<HandedStep> Extend() ABSL_LOCKS_EXCLUDED(mutex_);
  // Does the same as StepHandoff::KeepSamples(). Errors: InvalidArgument (if the job has local
  // steps).
  absl::Status KeepSamples() ABSL_LOCKS_EXCLUDED(mutex_);
  trainer::StepForecast Forecast() { return handoff_.Forecast(); }
  absl::Status BlockReady(int block);
  absl::Status FinishStep(absl::StatusOr<model::BatchResult> result);
  absl::Status SetLearningRate(int block, double rate);
  absl::Status SetWeight(int64_t weight) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Log(absl::string_view name, double value) { return handoff_.Log(name, value); }
  absl::Status SkipStep() ABSL_LOCKS_EXCLUDED(mutex_);
  std::string State() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Leave() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A vector of the state of the servers' optimizer, and the versions of the buckets.
  struct StateVector {
    std::vector<float> elements;
    std::vector<Version> versions;
  };

  // Stores the versions of new weights. Called on thread_.
  void OnWeights(const std::vector<Version>& versions) ABSL_LOCKS_EXCLUDED(mutex_);
  // Pulls a vector of the state to `state`, which has all elements. After the job, takes it from
  // last_state_. Returns the versions of the buckets.
  absl::StatusOr<std::vector<Version>> PullState(int state_vector, absl::Span<float> state)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Pulls the vectors that KeepState() has asked for, as they belong to the job's last weights.
  // Called on thread_.
  void KeepLastState() ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until the worker has registered. Errors: the error that the worker has ended with
  // before.
  absl::Status AwaitRegistration() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNotStarted() const;
  absl::Status CheckStarted() const;
  // Errors: InvalidArgument (if the job has local steps, so that a step cannot be `what`).
  absl::Status CheckHasNoLocalSteps(absl::string_view what) ABSL_LOCKS_EXCLUDED(mutex_);
  // Allocates the vectors with this layout.
  absl::Status Allocate(params::Layout layout);
  // Blocks until the job is known, and allocates the vectors with the job's layout.
  absl::Status AllocateAsTheJob() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the reason why the worker has ended before it knew the job.
  absl::Status EndBeforeTheJob() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells the worker's thread that the data is known, and that the vectors have the initial
  // weights. Errors: FailedPrecondition (if the worker has started and vectors or data are
  // missing).
  absl::Status HandOverVectors() ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs the worker until it has ended. Called on thread_.
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  messages::OfferedLayout Offer() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<const params::Layout*> AwaitVectors() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EnterAndRun() ABSL_LOCKS_EXCLUDED(mutex_);
  // Joins thread_. Several threads may call it at once.
  void AwaitThread() ABSL_LOCKS_EXCLUDED(joining_);

  // Used by the program's thread before Start(). Afterwards only read.
  worker::Worker::Config config_;
  worker::WorkerEntrance entrance_;
  job::ProposedSettings proposed_;
  std::vector<params::TensorSpec> tensors_;
  std::optional<params::Layout>
      // Layout of the tensors in the order in which they were added. Not set means that more
      // tensors may be added.
      own_layout_;
  // After Start(), the program's thread may set it once, until vectors_outcome_ is OK.
  std::optional<messages::DatasetInfo> data_;
  bool is_shuffled_ = true;  // see Dataset::is_shuffled()
  std::string frozen_hash_;  // See OfferedLayout.

  // Used only by the program's thread until vectors_outcome_ is set. Afterwards only read.
  std::optional<params::Layout> layout_;
  CallerVectors vectors_;
  StepHandoff handoff_;
  std::thread thread_;
  absl::Mutex joining_;
  std::atomic<bool> has_started_ = false;
  std::atomic<pid_t> process_ = 0;  // the process that called Start(), 0 before
  std::atomic<int64_t> weights_version_ = -1;

  absl::Mutex mutex_;
  std::optional<messages::Registration> registration_ ABSL_GUARDED_BY(mutex_);
  // Versions of the newest weights from the servers, by bucket.
  std::vector<Version> bucket_versions_ ABSL_GUARDED_BY(mutex_);
  int num_kept_vectors_ ABSL_GUARDED_BY(mutex_) = 0;             // see KeepState()
  std::vector<StateVector> last_state_ ABSL_GUARDED_BY(mutex_);  // see KeepLastState()
  job::JobLoss loss_ ABSL_GUARDED_BY(mutex_);                    // the loss at the last evaluation
  std::optional<messages::LiveWorkers> live_workers_ ABSL_GUARDED_BY(mutex_);
  // The error of Allocate(), or OK when the program has also written its initial weights.
  std::optional<absl::Status> vectors_outcome_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<worker::Worker> worker_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::capi
