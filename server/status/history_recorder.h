// SPDX-License-Identifier: Apache-2.0

// HistoryRecorder holds the curves and the events of a run so far, for readers of the dashboard.
// Its size is bounded: in a long run neighbouring rounds become one point, and the oldest events
// are dropped.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/history/run_history.h"
#include "common/job/job_loss.h"
#include "common/job/job_settings.h"
#include "common/job/job_spec.h"
#include "common/runtime/ids.h"
#include "server/coordinator/announcement.h"

namespace lodestar::status {

// The class is thread-safe.
class HistoryRecorder {
 public:
  static constexpr size_t kMaxPoints = 2048;  // in each curve
  static constexpr size_t kMaxEvents = 512;

  // Loads the history of an earlier process. Must be called before anything is recorded.
  void GoOnFrom(const history::RunHistory& history) ABSL_LOCKS_EXCLUDED(mutex_);
  // Records what happened at `now`. If the servers returned to an earlier round, the rounds that
  // are repeated replace their earlier records.
  void Note(const coordinator::Announcement& announcement, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);

  history::RunHistory Read() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns a number that changes whenever there is something new to read.
  uint64_t version() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void NoteJob(const job::JobSpec& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteRound(const rounds::RoundSummary& summary) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteRestored(const coordinator::RestoredPoint& point) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GoBackTo(Round next_round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds an event, with a later time than the event before.
  void NoteEvent(history::HistoryEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::vector<history::HistoryPoint> trained_ ABSL_GUARDED_BY(mutex_);
  int64_t rounds_per_point_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t tokens_per_sample_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<job::LossUnit> loss_unit_ ABSL_GUARDED_BY(mutex_);
  std::vector<job::JobSetting> settings_ ABSL_GUARDED_BY(mutex_);
  std::vector<history::HeldoutPoint> heldout_ ABSL_GUARDED_BY(mutex_);
  std::deque<history::HistoryEvent> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lodestar::status
