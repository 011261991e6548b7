// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/outbox.h"

#include <string>

namespace lodestar::coordinator {

void Outbox::Command(shards::ShardCommand command) {
  effects_.emplace_back(std::move(command));
  Remember();
}

void Outbox::Repeat(int shard, shards::ShardCommand command) {
  effects_.emplace_back(shards::RepeatedCommand{shard, std::move(command)});
}

void Outbox::Do(CheckpointTask task) {
  effects_.emplace_back(std::move(task));
  Remember();
}

void Outbox::Announce(Announcement announcement) { effects_.emplace_back(std::move(announcement)); }

void Outbox::Tell(absl::string_view event) { Announce(Event{std::string(event)}); }

bool Outbox::RaiseAlarm(absl::string_view text, absl::Time now, AlarmKind kind,
                        absl::string_view subject) {
  const bool is_new = alarms_.Raise(text, now, kind, subject);
  if (is_new) Announce(Alarm{std::string(text)});
  return is_new;
}

void Outbox::SetAlarm(absl::string_view subject, const absl::Status& status, absl::Time now) {
  if (status.ok()) {
    alarms_.End(subject, now, now);
  } else if (alarms_.Holds(subject)) {
    alarms_.Raise(status.message(), now, AlarmKind::kAlarm, subject);
  } else {
    RaiseAlarm(status.message(), now, AlarmKind::kAlarm, subject);
  }
  Touch();
}

}  // namespace lodestar::coordinator
