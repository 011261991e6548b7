// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/checkpoints/checkpoint_schedule.h"

#include <algorithm>

namespace lodestar::checkpoints {

void CheckpointSchedule::Restart(Round round, absl::Time now) {
  memory_.last_round = round;
  memory_.last_begun = now;
  memory_.pause = absl::ZeroDuration();
}

bool CheckpointSchedule::IsDueByRound(Round round) const {
  return config_.every_rounds > 0 && round != memory_.last_round &&
         round.value() % config_.every_rounds == 0;
}

bool CheckpointSchedule::IsDueByTime(Round complete, absl::Time now) const {
  if (config_.interval == absl::ZeroDuration() || now < memory_.last_begun) return false;
  if (memory_.pause == absl::ZeroDuration()) return complete > memory_.last_round;
  return now - memory_.last_begun >= interval();
}

void CheckpointSchedule::OnBegun(Round round, absl::Time now) {
  memory_.last_round = round;
  memory_.last_begun = now;
  memory_.pause = std::min(config_.interval, std::max(kFirstPause, 2 * memory_.pause));
}

void CheckpointSchedule::OnWritten(absl::Duration write_time) {
  memory_.earlier_write_time = memory_.write_time;
  memory_.write_time = write_time;
}

absl::Duration CheckpointSchedule::write_time() const {
  return memory_.earlier_write_time == absl::ZeroDuration()
             ? memory_.write_time
             : std::min(memory_.write_time, memory_.earlier_write_time);
}

absl::Duration CheckpointSchedule::interval() const {
  if (memory_.pause == absl::ZeroDuration()) return absl::ZeroDuration();
  return std::max(memory_.pause, write_time() / config_.max_cost);
}

}  // namespace lodestar::checkpoints
