// The curves and the events of a run so far, for those who look at it. Bounded: of a long run
// neighbouring rounds become one point, and the oldest events go.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "server/coordinator/announcement.h"

namespace lodestar {

// Consecutive rounds that were trained.
struct HistoryPoint {
  Round first_round;
  Round last_round;
  int64_t samples = 0;      // of the job, after them
  double seconds = 0.0;     // of training, after them
  double train_loss = 0.0;  // nats per prediction: the mean of those rounds that have one
  int num_losses = 0;
  friend bool operator==(const HistoryPoint&, const HistoryPoint&) = default;
};

struct HeldoutPoint {
  Round round;          // updates in the weights
  int64_t samples = 0;  // of the job until then
  double seconds = 0.0;
  double loss = 0.0;  // nats per prediction
  friend bool operator==(const HeldoutPoint&, const HeldoutPoint&) = default;
};

struct HistoryEvent {
  absl::Time time;
  bool is_alarm = false;
  std::string text;
  friend bool operator==(const HistoryEvent&, const HistoryEvent&) = default;
};

// Thread-safe.
class RunHistory {
 public:
  static constexpr size_t kMaxPoints = 2048;  // of each curve
  static constexpr size_t kMaxEvents = 512;

  // At `now`. Rounds that come again after the servers went back replace those that they were.
  void Note(const Announcement& announcement, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Content {
    std::vector<HistoryPoint> trained;
    std::vector<HeldoutPoint> heldout;
    std::vector<HistoryEvent> events;  // the newest last
    int64_t rounds_per_point = 1;
  };
  Content Read() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Another one once there is something else to read.
  uint64_t version() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void NoteRound(const RoundSummary& summary) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GoBackTo(Round next_round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteEvent(HistoryEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::vector<HistoryPoint> trained_ ABSL_GUARDED_BY(mutex_);
  int64_t rounds_per_point_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<HeldoutPoint> heldout_ ABSL_GUARDED_BY(mutex_);
  std::deque<HistoryEvent> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One line: {"rounds_per_point", "trained": {"round", "samples", "seconds", "loss"}, "heldout": the
// same, "events": [{"time" (seconds since 1970), "alarm", "text"}]}: a curve is one array per
// column, and a loss that is not known is null.
std::string HistoryJson(const RunHistory::Content& content);

}  // namespace lodestar
