// SPDX-License-Identifier: Apache-2.0

// CheckpointSchedule decides when the next checkpoint is due. There are two ways, and both can be
// used together:
// - By rounds: A checkpoint is due after every Config::every_rounds rounds.
// - By time: After a start, the first checkpoint is due after the first round. The pauses between
//   the next ones double up to Config::interval, so that a crash loses at most half of the work
//   since the start. If writing takes long, the pauses are longer: see Config::max_cost.
// Pure; the coordinator asks between rounds.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/runtime/ids.h"

namespace lodestar::checkpoints {

class CheckpointSchedule {
 public:
  struct Config {
    int64_t every_rounds = 0;  // 0 means that rounds do not count.
    // Maximum pause from the begin of a checkpoint to the begin of the next. If writing takes long,
    // max_cost makes the pause longer. 0 means that no checkpoint is due by time.
    absl::Duration interval = absl::ZeroDuration();
    // Maximum share of the time that may go into writing checkpoints that are due by time. If
    // writing takes more, the pause between checkpoints grows. Training goes on during a write, so
    // it loses less than this share.
    double max_cost = 0.01;
  };

  static constexpr absl::Duration kFirstPause = absl::Seconds(10);

  // What changes while the job runs. The settings do not change.
  struct Memory {
    Round last_round;
    absl::Time last_begun = absl::InfiniteFuture();
    // How long writing the last checkpoint and the one before it took. 0 means that there was none.
    absl::Duration write_time;
    absl::Duration earlier_write_time;
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
  // Returns whether a checkpoint is due by time. `complete` is the number of complete rounds.
  bool IsDueByTime(Round complete, absl::Time now) const;
  // Records that a checkpoint of `round` was begun or left out.
  void OnBegun(Round round, absl::Time now);
  void OnWritten(absl::Duration write_time);

  // Returns how long writing takes, the shorter of the last two times: a disk that hung once does
  // not count. 0 means that no checkpoint was written.
  absl::Duration write_time() const;
  // Returns the pause from the begin of the last checkpoint to the begin of the next one by time.
  // It grows with write_time(). 0 means that no checkpoint is due by time, or that the first one is
  // due after the next round.
  absl::Duration interval() const;
  bool is_stretched() const { return interval() > config_.interval; }

 private:
  const Config config_;
  Memory memory_;
};

}  // namespace lodestar::checkpoints
