// What follows from the calls of a coordinator, until its owner takes it, and the numbers that tell
// whether there is anything new. Pure.
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

namespace lodestar {

// What follows from a call: carried out in order, before what the call answered goes out.
using Effect = std::variant<ShardCommand, RepeatedCommand, CheckpointTask, Announcement>;

class Outbox {
 public:
  // `alarms`: has those that were raised; outlives this.
  explicit Outbox(AlarmBook* alarms) : alarms_(*alarms) {}

  void Command(ShardCommand command);
  // To one server, which may have missed it.
  void Repeat(int shard, ShardCommand command);
  void Do(CheckpointTask task);
  void Announce(Announcement announcement);
  void Tell(absl::string_view event);
  // See AlarmBook. True if there was none of this text.
  bool RaiseAlarm(absl::string_view text, absl::Time now, AlarmKind kind = AlarmKind::kAlarm,
                  absl::string_view subject = "");
  // Ends the alarms of this subject, and raises one if `status` is an error.
  void SetAlarm(absl::string_view subject, const absl::Status& status, absl::Time now);

  // What callers wait for may have a new answer.
  void Touch() {
    ++state_version_;
    Remember();
  }
  // Something has changed that outlives the process.
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

}  // namespace lodestar
