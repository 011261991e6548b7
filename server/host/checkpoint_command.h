// SPDX-License-Identifier: Apache-2.0

// CheckpointCommand gives each finished checkpoint to a command of the operator (--on_checkpoint),
// such as one that copies it into a storage bucket. It does not know what the command is, nor how
// it is run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "common/runtime/executor.h"

namespace lodestar::host {

// The class is thread-safe. The executor must have run all tasks of the object before the object is
// destroyed.
class CheckpointCommand {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    Executor* executor = nullptr;  // one thread for nothing else; not owned
    // Runs the command for `folder`. `set_aside` is that of Add(). Blocks until the command is done
    // or `must_end` returns true.
    std::function<absl::Status(const std::string& folder, const std::vector<std::string>& set_aside,
                               const std::function<bool()>& must_end)>
        run;
    std::function<bool(const std::string& folder)> exists;
    // Called with a sentence about what went wrong, such as a command that failed or takes too
    // long. Called with OK after a command that has succeeded.
    std::function<void(const absl::Status&)> on_outcome;
  };

  explicit CheckpointCommand(Deps deps) : deps_(std::move(deps)) {}

  // Queues a run of the command for the checkpoint in `folder`. `set_aside` has the names that
  // NamesSetAsideAfter() has returned for it. If it is an error, that is the outcome of the run.
  void Add(std::string folder, absl::StatusOr<std::vector<std::string>> set_aside)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `done` once all queued commands are done, with the outcome of the last one, or once
  // Finish() drops them, with its error. The call may come at once, or later on another thread.
  void OnceDone(std::function<void(const absl::Status& outcome)> done) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until all queued commands are done, `patience` is over or `is_interrupted` returns true.
  // In the last two cases, ends the running command and drops the queued ones. Errors:
  // - DeadlineExceeded: `patience` is over
  // - Cancelled: `is_interrupted` has returned true
  // - the error of the last command
  //
  // The first two name the folder and the number of commands that are not done.
  absl::Status Finish(absl::Duration patience, const std::function<bool()>& is_interrupted)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run(const std::string& folder, const absl::StatusOr<std::vector<std::string>>& set_aside)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const Deps deps_;
  absl::Mutex mutex_;
  int num_pending_ ABSL_GUARDED_BY(mutex_) = 0;   // commands queued or running
  absl::Status dropped_ ABSL_GUARDED_BY(mutex_);  // error of Finish() that has dropped commands
  std::vector<std::function<void(const absl::Status&)>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::string running_ ABSL_GUARDED_BY(mutex_);  // folder of the running command; empty: none runs
  absl::Time running_since_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::host
