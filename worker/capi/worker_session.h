// SPDX-License-Identifier: Apache-2.0

// WorkerSession: what is behind a handle of the C API: a worker on a thread of its own, and the
// vectors and steps that it shares with its program.
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
#include "common/job/proposed_settings.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "worker/capi/caller_workload.h"
#include "worker/capi/step_handoff.h"
#include "worker/worker.h"
#include "worker/worker_entry.h"

namespace lodestar::capi {

// What a worker is among the living workers of its job.
struct WorkerPlace {
  int64_t index = 0;      // see Registration::index
  int64_t count = 0;      // number of living workers
  bool is_first = false;  // true if its index is the lowest
};

// Thread-safe where the C API says so; see lodestar_worker.h for what each does and its errors.
class WorkerSession {
 public:
  WorkerSession();
  // Leaves, if that was not done.
  ~WorkerSession();

  // Errors: FailedPrecondition if the worker was started in the process that this one was forked
  // from: its threads are not here.
  absl::Status CheckProcess() const;

  absl::Status Set(absl::string_view setting, absl::string_view value);
  absl::Status Propose(absl::string_view setting, absl::string_view value);
  absl::Status AddTensor(params::TensorSpec tensor);
  absl::Status SetData(const messages::DatasetInfo& data);
  absl::Status Allocate() ABSL_LOCKS_EXCLUDED(mutex_);
  // The layout of the vectors. There is none before Allocate().
  const std::optional<params::Layout>& layout() const { return layout_; }
  CallerVectors* vectors() { return &vectors_; }
  // How many updates the parameters have had that the servers have given last. -1 means that none
  // were given, or that some tensors have had more than others.
  int64_t weights_version() const { return weights_version_; }
  // Returns the loss of the job with its last evaluation. `heldout` is not set if there was none.
  job::JobLoss Evaluation() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status Start();
  // Blocks until the worker has registered. Errors: InvalidArgument: there is no such setting; what
  // the worker has ended with before.
  absl::StatusOr<std::string> JobSetting(absl::string_view setting) ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until the worker has registered. Errors: Unimplemented if the servers are of an earlier
  // release; what the worker has ended with before.
  absl::StatusOr<WorkerPlace> Place() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether JobSetting() and Place() would not block; waits for that for at most `timeout`.
  bool AwaitJob(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same of Next(). Both hand over what the program has written into the vectors.
  bool AwaitNews(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::optional<HandedStep>> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  trainer::StepForecast Forecast() { return handoff_.Forecast(); }
  absl::Status BlockReady(int block);
  absl::Status FinishStep(absl::StatusOr<model::BatchResult> result);
  absl::Status Log(absl::string_view name, double value) { return handoff_.Log(name, value); }
  absl::Status SkipStep() ABSL_LOCKS_EXCLUDED(mutex_);
  std::string State() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Leave() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Blocks until the worker has registered. Errors: what it has ended with before.
  absl::Status AwaitRegistration() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNotStarted() const;
  absl::Status CheckStarted() const;
  // Makes the vectors in this order of the tensors.
  absl::Status Allocate(params::Layout layout);
  // In that of the job, once it is known.
  absl::Status AllocateAsTheJob() ABSL_LOCKS_EXCLUDED(mutex_);
  // Why no job is known any more.
  absl::Status EndBeforeTheJob() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells the worker's thread that the data is known, and that the vectors have what the program
  // begins with. Errors: FailedPrecondition if the worker has started and lacks one of both.
  absl::Status HandOverVectors() ABSL_LOCKS_EXCLUDED(mutex_);
  // On thread_: until the worker has ended.
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  messages::OfferedLayout Offer() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<const params::Layout*> AwaitVectors() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EnterAndRun() ABSL_LOCKS_EXCLUDED(mutex_);
  // Several threads may leave at once.
  void AwaitThread() ABSL_LOCKS_EXCLUDED(joining_);

  // Before Start(), of the program's thread; later only read.
  worker::Worker::Config config_;
  worker::WorkerEntrance entrance_;
  job::ProposedSettings proposed_;
  std::vector<params::TensorSpec> tensors_;
  std::optional<params::Layout>
      own_layout_;  // of the tensors as they were added; none: there may be more
  // May be set once after Start(), by the program's thread, until vectors_outcome_ is OK.
  std::optional<messages::DatasetInfo> data_;
  std::string frozen_hash_;  // of OfferedLayout

  // Used by the program's thread alone until vectors_outcome_ is set; then only read.
  std::optional<params::Layout> layout_;
  CallerVectors vectors_;
  StepHandoff handoff_;
  std::thread thread_;
  absl::Mutex joining_;
  std::atomic<bool> has_started_ = false;
  std::atomic<pid_t> process_ = 0;  // that it was started in; 0 before
  std::atomic<int64_t> weights_version_ = -1;

  absl::Mutex mutex_;
  std::optional<messages::Registration> registration_ ABSL_GUARDED_BY(mutex_);
  job::JobLoss loss_ ABSL_GUARDED_BY(mutex_);  // with the last evaluation
  std::optional<messages::LiveWorkers> live_workers_ ABSL_GUARDED_BY(mutex_);
  // The outcome of Allocate(). OK once the program has written into the vectors, too.
  std::optional<absl::Status> vectors_outcome_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<worker::Worker> worker_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::capi
