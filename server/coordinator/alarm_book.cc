// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/alarm_book.h"

#include <algorithm>

namespace lodestar::coordinator {

bool AlarmBook::Raise(absl::string_view text, absl::Time now, AlarmKind kind,
                      absl::string_view subject) {
  auto it = std::find_if(entries_.begin(), entries_.end(),
                         [&](const Entry& entry) { return entry.text == text; });
  if (it != entries_.end()) {
    it->raised_at = now;
    ++it->count;
    it->over_since.reset();
    std::rotate(it, it + 1, entries_.end());
    return false;
  }
  if (entries_.size() >= kMaxAlarms) {
    const auto alarm = std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) {
      return entry.kind == AlarmKind::kAlarm;
    });
    entries_.erase(alarm != entries_.end() ? alarm : entries_.begin());
  }
  entries_.push_back({std::string(text), kind, std::string(subject), now, 1});
  return true;
}

void AlarmBook::End(absl::string_view subject, absl::Time raised_by, absl::Time now) {
  for (Entry& entry : entries_) {
    if (entry.subject != subject || entry.raised_at > raised_by) continue;
    if (!entry.over_since.has_value()) entry.over_since = now;
  }
}

std::vector<AlarmSnapshot> AlarmBook::Snapshot(absl::Time now) const {
  std::vector<AlarmSnapshot> alarms;
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    AlarmSnapshot& alarm = alarms.emplace_back();
    alarm.text = it->text;
    alarm.age = now - it->raised_at;
    alarm.count = it->count;
    alarm.is_reminder = it->kind == AlarmKind::kReminder;
    if (it->over_since.has_value()) alarm.over_age = now - *it->over_since;
  }
  return alarms;
}

}  // namespace lodestar::coordinator
