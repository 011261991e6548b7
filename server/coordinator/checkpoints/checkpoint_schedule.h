// When the next checkpoint is due: by rounds, or by time as long as writing takes a small share of
// it. By time the first one follows the first round after a start, and the pauses between the next
// ones double up to the interval, so that a crash loses no more than half of what was done since
// the start. Pure; the coordinator asks between rounds.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/runtime/ids.h"

namespace lodestar {

class CheckpointSchedule {
 public:
  struct Config {
    int64_t every_rounds = 0;  // 0 means not by rounds.
    // The longest pause between two begins. 0 means that time does not count.
    absl::Duration interval = absl::ZeroDuration();
    // Share of the time that checkpoints by time may be written in: the slower the disk, the longer
    // the interval. Training goes on meanwhile, so what it loses is less.
    double max_cost = 0.01;
  };

  static constexpr absl::Duration kFirstPause = absl::Seconds(10);

  // All that it knows beside its settings.
  struct Memory {
    Round last_round;
    absl::Time last_begun = absl::InfiniteFuture();
    absl::Duration write_time;
    absl::Duration pause;  // after the last begin; 0 means that none has followed the start
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  explicit CheckpointSchedule(const Config& config) : config_(config) {}
  void Resume(const Memory& memory) { memory_ = memory; }
  const Memory& memory() const { return memory_; }

  // All up to `round` is on disk, or is where the job starts.
  void Restart(Round round, absl::Time now);
  bool IsDueByRound(Round round) const;
  // `complete`: how many rounds are.
  bool IsDueByTime(Round complete, absl::Time now) const;
  // A checkpoint of `round` was begun, or left out.
  void OnBegun(Round round, absl::Time now);
  void OnWritten(absl::Duration write_time) { memory_.write_time = write_time; }

  // The pause after the last begin, longer if writing it took long. 0 means that time does not
  // count, or that the first checkpoint follows the next round.
  absl::Duration interval() const;
  bool is_stretched() const { return interval() > config_.interval; }

 private:
  const Config config_;
  Memory memory_;
};

}  // namespace lodestar
