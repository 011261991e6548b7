// SPDX-License-Identifier: Apache-2.0

// Holds the effects of calls to a coordinator until its owner takes them. Also holds two version
// numbers, which show whether the state or the memory has changed. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/alarm_book.h"
#include "server/coordinator/announcement.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/shards/shard_command.h"

namespace lodestar::coordinator {

// One effect of a call to the coordinator. The owner carries out the effects in order. It does so
// before it answers the call.
using Effect =
    std::variant<shards::ShardCommand, shards::RepeatedCommand, CheckpointTask, Announcement>;

class Outbox {
 public:
  // `alarms` stores the alarms that are raised. It must outlive this object.
  explicit Outbox(AlarmBook* alarms) : alarms_(*alarms) {}

  void Command(shards::ShardCommand command);
  // Sends the command to one server again, because the server may have missed it.
  void Repeat(int shard, shards::ShardCommand command);
  void Do(CheckpointTask task);
  void Announce(Announcement announcement);
  void Tell(absl::string_view event);
  // Raises an alarm: see AlarmBook::Raise(). Returns true if the alarm or its text is new.
  bool RaiseAlarm(absl::string_view text, absl::Time now, AlarmKind kind = AlarmKind::kAlarm,
                  absl::string_view subject = "");
  // If `status` is an error, raises the alarm of this subject with its message, and otherwise ends
  // that alarm. While the alarm holds, a new text is not announced, because some texts are new each
  // time.
  void SetAlarm(absl::string_view subject, const absl::Status& status, absl::Time now);

  // Must be called after a change that may allow a waiting call to get its answer.
  void Touch() {
    ++state_version_;
    Remember();
  }
  // Call if a part of the CoordinatorMemory has changed.
  void Remember() { ++memory_version_; }

  std::vector<Effect> Take() { return std::exchange(effects_, {}); }
  uint64_t state_version() const { return state_version_; }
  uint64_t memory_version() const { return memory_version_; }

 private:
  AlarmBook& alarms_;
  uint64_t state_version_ = 1;
  uint64_t memory_version_ = 1;
  std::vector<Effect> effects_;
};

}  // namespace lodestar::coordinator
