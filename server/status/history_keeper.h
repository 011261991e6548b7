// SPDX-License-Identifier: Apache-2.0

// HistoryKeeper keeps a run's history in a file, and goes on from the file after a restart. A
// thread of its own writes the file now and then, and at the end. If a write fails, the failure is
// reported and the write is tried again.
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
  // Interval at which the keeper checks for new data until it has written the file once.
  static constexpr absl::Duration kFirstInterval = absl::Milliseconds(200);

  struct Deps {
    Clock* clock = &Clock::Real();
    HistoryRecorder* recorder = nullptr;  // must outlive the keeper
    // The two functions are called from the keeper's thread and by the destructor. on_trouble gets
    // the error of each write that fails, and OK once a write succeeds again.
    std::function<void(const absl::Status&)> on_trouble = [](const absl::Status&) {};
    // Returns OK if the folder of `path` still belongs to this run.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    absl::Duration interval = absl::Seconds(10);
  };

  // Loads the history in `path` into the recorder. If the file was written by a later release, is
  // damaged or is no history, it is renamed to a new name.
  HistoryKeeper(std::string path, Deps deps);
  // Writes what is not written yet.
  ~HistoryKeeper();

  // Returns why the history in `path` was not loaded. Empty means that it was loaded.
  const std::string& lost() const { return lost_; }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteIfNew();

  const std::string path_;
  const Deps deps_;
  std::string lost_;
  uint64_t written_version_ = 0;  // version() of the recorder at the last write
  bool is_kept_ = false;          // the file has something of the run
  bool is_failing_ = false;       // the last write has failed
  absl::Mutex mutex_;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lodestar::status
