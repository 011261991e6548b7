#include "server/coordinator/checkpoint_schedule.h"

#include <algorithm>

namespace lodestar {

void CheckpointSchedule::Restart(Round round, absl::Time now) { OnBegun(round, now); }

bool CheckpointSchedule::IsDueByRound(Round round) const {
  return config_.every_rounds > 0 && round != memory_.last_round &&
         round.value() % config_.every_rounds == 0;
}

bool CheckpointSchedule::IsDueByTime(absl::Time now) const {
  return config_.interval > absl::ZeroDuration() && now - memory_.last_begun >= interval();
}

void CheckpointSchedule::OnBegun(Round round, absl::Time now) {
  memory_.last_round = round;
  memory_.last_begun = now;
}

absl::Duration CheckpointSchedule::interval() const {
  if (config_.interval == absl::ZeroDuration()) return absl::ZeroDuration();
  return std::max(config_.interval, memory_.write_time / config_.max_cost);
}

}  // namespace lodestar
