// WorkerSession: what is behind a handle of the C API: a worker on a thread of its own, and the
// vectors and steps that it shares with its program.
#pragma once

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
#include "common/job_spec.h"
#include "common/layout.h"
#include "common/proposed_settings.h"
#include "worker/capi/caller_workload.h"
#include "worker/capi/step_handoff.h"
#include "worker/worker.h"
#include "worker/worker_entry.h"

namespace lodestar {

// Thread-safe where the C API says so; see lodestar_worker.h for what each does and its errors.
class WorkerSession {
 public:
  WorkerSession();
  // Leaves, if that was not done.
  ~WorkerSession();

  absl::Status Set(absl::string_view setting, absl::string_view value);
  absl::Status Propose(absl::string_view setting, absl::string_view value);
  absl::Status AddTensor(TensorSpec tensor);
  absl::Status SetData(const DatasetInfo& data);
  absl::Status Allocate();
  // Without a layout before Allocate().
  const std::optional<Layout>& layout() const { return layout_; }
  CallerVectors* vectors() { return &vectors_; }

  absl::Status Start();
  // Blocks until the worker has registered. Errors: InvalidArgument: there is no such setting; what
  // the worker has ended with before.
  absl::StatusOr<std::string> JobSetting(absl::string_view setting) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether JobSetting() would not block; waits for that for at most `timeout`.
  bool AwaitJob(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same of Next().
  bool AwaitNews(absl::Duration timeout) { return !has_started_ || handoff_.AwaitNews(timeout); }
  absl::StatusOr<std::optional<HandedStep>> Next();
  absl::Status BlockReady(int block);
  absl::Status FinishStep(absl::StatusOr<BatchResult> result);
  std::string State() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Leave() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status CheckNotStarted() const;
  absl::Status CheckStarted() const;
  // On thread_: until the worker has ended.
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EnterAndRun() ABSL_LOCKS_EXCLUDED(mutex_);

  // Before Start(), of the program's thread; later only read.
  Worker::Config config_;
  WorkerEntrance entrance_;
  ProposedSettings proposed_;
  std::vector<TensorSpec> tensors_;
  std::optional<Layout> layout_;
  std::optional<DatasetInfo> data_;

  CallerVectors vectors_;
  StepHandoff handoff_;
  std::thread thread_;
  std::atomic<bool> has_started_ = false;

  absl::Mutex mutex_;
  std::optional<JobSpec> job_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Worker> worker_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
