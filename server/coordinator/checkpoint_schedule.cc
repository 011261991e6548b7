#include "server/coordinator/checkpoint_schedule.h"

#include <algorithm>

namespace lodestar {

void CheckpointSchedule::Restart(Round round, absl::Time now) { OnBegun(round, now); }

bool CheckpointSchedule::IsDueByRound(Round round) const {
  return config_.every_rounds > 0 && round != last_round_ &&
         round.value() % config_.every_rounds == 0;
}

bool CheckpointSchedule::IsDueByTime(absl::Time now) const {
  return config_.interval > absl::ZeroDuration() && now - last_begun_ >= interval();
}

void CheckpointSchedule::OnBegun(Round round, absl::Time now) {
  last_round_ = round;
  last_begun_ = now;
}

absl::Duration CheckpointSchedule::interval() const {
  if (config_.interval == absl::ZeroDuration()) return absl::ZeroDuration();
  return std::max(config_.interval, write_time_ / config_.max_cost);
}

}  // namespace lodestar
