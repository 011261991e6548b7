// Keeps a run's history in a file, which it goes on from. A thread of its own writes it now and
// then, and at the end; what cannot be written is told, and tried again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "server/status/history_recorder.h"

namespace lodestar::status {

class HistoryKeeper {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    HistoryRecorder* recorder = nullptr;  // outlives the keeper
    // These two are called from the keeper's thread, and by the destructor.
    std::function<void(absl::string_view)> on_trouble = [](absl::string_view) {};
    // Returns OK if the folder of `path` still is this run's.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    absl::Duration interval = absl::Seconds(10);
  };

  // Hands the recorder what `path` has. A file of a later release, or one that is damaged or
  // none of ours, is moved aside, to a name that no file has.
  HistoryKeeper(std::string path, Deps deps);
  // Writes what there is.
  ~HistoryKeeper();

  // Why the recorder has not got what `path` has; empty: it has.
  const std::string& lost() const { return lost_; }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteIfNew();

  const std::string path_;
  const Deps deps_;
  std::string lost_;
  uint64_t written_version_ = 0;  // the recorder's
  absl::Mutex mutex_;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lodestar::status
