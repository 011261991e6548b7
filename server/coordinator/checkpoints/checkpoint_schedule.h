// SPDX-License-Identifier: Apache-2.0

// CheckpointSchedule decides when the next checkpoint is due, by rounds or by time. By time,
// checkpoints are made as long as writing them takes a small share of the time. After a start, the
// first checkpoint by time is made after the first round. The pauses between the next checkpoints
// double, up to the interval, so that a crash loses at most half of the work since the start. Pure;
// the coordinator asks between rounds.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/runtime/ids.h"

namespace lodestar::checkpoints {

class CheckpointSchedule {
 public:
  struct Config {
    int64_t every_rounds = 0;  // 0 means that rounds do not count.
    // Maximum time from the begin of a checkpoint to the begin of the next, unless writing takes
    // long. 0 means that time does not count.
    absl::Duration interval = absl::ZeroDuration();
    // Maximum share of the time that is spent on writing checkpoints by time. With a slower disk,
    // the interval is longer. Training goes on during a write, so training loses less than this
    // share.
    double max_cost = 0.01;
  };

  static constexpr absl::Duration kFirstPause = absl::Seconds(10);

  // The state besides the settings.
  struct Memory {
    Round last_round;
    absl::Time last_begun = absl::InfiniteFuture();
    absl::Duration write_time;
    // Pause between the last checkpoint and the next, counted from when they begin. 0 means that no
    // checkpoint has been begun since the start.
    absl::Duration pause;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  explicit CheckpointSchedule(const Config& config) : config_(config) {}
  void Resume(const Memory& memory) { memory_ = memory; }
  const Memory& memory() const { return memory_; }

  // Starts the schedule again. All rounds before `round` are on disk, or the job starts at `round`.
  void Restart(Round round, absl::Time now);
  bool IsDueByRound(Round round) const;
  // `complete` is the number of complete rounds.
  bool IsDueByTime(Round complete, absl::Time now) const;
  // Records that a checkpoint of `round` was begun or left out.
  void OnBegun(Round round, absl::Time now);
  void OnWritten(absl::Duration write_time) { memory_.write_time = write_time; }

  // Returns the pause between the last checkpoint and the next, counted from when they begin. The
  // pause is longer if writing the last checkpoint took long. 0 means that time does not count, or
  // that the first checkpoint follows the next round.
  absl::Duration interval() const;
  bool is_stretched() const { return interval() > config_.interval; }

 private:
  const Config config_;
  Memory memory_;
};

}  // namespace lodestar::checkpoints
