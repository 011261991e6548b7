// Gives each finished checkpoint to a command of the operator (--on_checkpoint), such as one that
// copies it into a bucket. Does not know what the command is, nor how it is run.
#pragma once

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "common/runtime/executor.h"

namespace lodestar::host {

// Thread-safe. The executor must have run all tasks before this is destroyed.
class CheckpointCommand {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    Executor* executor = nullptr;  // one thread that nothing else needs; not owned
    // Blocks until the command is done with `folder`, or `must_end` is true.
    std::function<absl::Status(const std::string& folder, const std::function<bool()>& must_end)>
        run;
    std::function<bool(const std::string& folder)> exists;
    // Called with a sentence about what went wrong, and with OK once a command has worked.
    std::function<void(const absl::Status&)> on_outcome;
  };

  explicit CheckpointCommand(Deps deps) : deps_(std::move(deps)) {}

  // Queues the command for the checkpoint in `folder`, behind those that wait.
  void Add(std::string folder) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until all queued commands are done, at most `patience` or until `is_interrupted`; then
  // ends the running one and drops the others. Errors: those of the last command;
  // DeadlineExceeded or Cancelled that names the folder and counts those that are left.
  absl::Status Finish(absl::Duration patience, const std::function<bool()>& is_interrupted)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run(const std::string& folder) ABSL_LOCKS_EXCLUDED(mutex_);

  const Deps deps_;
  absl::Mutex mutex_;
  int num_pending_ ABSL_GUARDED_BY(mutex_) = 0;  // queued or running
  bool must_end_ ABSL_GUARDED_BY(mutex_) = false;
  std::string running_ ABSL_GUARDED_BY(mutex_);  // the folder; empty between commands
  absl::Time running_since_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::host
