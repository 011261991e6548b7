#include "server/coordinator/alarm_book.h"

#include <algorithm>

namespace lodestar {

bool AlarmBook::Raise(absl::string_view text, absl::Time now, AlarmKind kind) {
  auto it = std::find_if(entries_.begin(), entries_.end(),
                         [&](const Entry& entry) { return entry.text == text; });
  if (it != entries_.end()) {
    it->raised_at = now;
    ++it->count;
    std::rotate(it, it + 1, entries_.end());
    return false;
  }
  if (entries_.size() >= kMaxAlarms) {
    const auto alarm = std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) {
      return entry.kind == AlarmKind::kAlarm;
    });
    entries_.erase(alarm != entries_.end() ? alarm : entries_.begin());
  }
  entries_.push_back({std::string(text), kind, now, 1});
  return true;
}

std::vector<AlarmSnapshot> AlarmBook::Snapshot(absl::Time now) const {
  std::vector<AlarmSnapshot> alarms;
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    alarms.push_back({.text = it->text,
                      .age = now - it->raised_at,
                      .count = it->count,
                      .is_reminder = it->kind == AlarmKind::kReminder});
  }
  return alarms;
}

}  // namespace lodestar
