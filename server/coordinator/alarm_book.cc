// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/alarm_book.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lodestar::coordinator {

bool AlarmBook::Raise(absl::string_view text, absl::Time now, AlarmKind kind,
                      absl::string_view subject) {
  auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return !subject.empty() && entry.subject == subject;
  });
  if (it == entries_.end()) {
    it = std::find_if(entries_.begin(), entries_.end(),
                      [&](const Entry& entry) { return entry.text == text; });
  }
  if (it != entries_.end()) {
    const bool is_new_text = it->text != text;
    it->text = std::string(text);
    it->raised_at = now;
    ++it->count;
    it->over_since.reset();
    std::rotate(it, it + 1, entries_.end());
    return is_new_text;
  }
  if (entries_.size() >= kMaxAlarms) MakeRoom(now);
  entries_.push_back({std::string(text), kind, std::string(subject), now, 1});
  return true;
}

void AlarmBook::MakeRoom(absl::Time now) {
  auto victim = std::find_if(entries_.begin(), entries_.end(),
                             [](const Entry& entry) { return entry.over_since.has_value(); });
  if (victim == entries_.end()) {
    victim = std::find_if(entries_.begin(), entries_.end(),
                          [](const Entry& entry) { return entry.kind == AlarmKind::kAlarm; });
    if (victim == entries_.end()) victim = entries_.begin();
    ++num_dropped_;
    dropped_at_ = now;
  }
  entries_.erase(victim);
}

void AlarmBook::End(absl::string_view subject, absl::Time raised_by, absl::Time now) {
  for (Entry& entry : entries_) {
    if (entry.subject != subject || entry.raised_at > raised_by) continue;
    if (!entry.over_since.has_value()) entry.over_since = now;
  }
}

bool AlarmBook::Holds(absl::string_view subject) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.subject == subject && !entry.over_since.has_value();
  });
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
  if (num_dropped_ > 0) {
    alarms.push_back({.text = absl::StrCat("this list has room for ", kMaxAlarms,
                                           " alarms, so it lacks older alarms that may still hold. "
                                           "The server's log (psctl logs) has all of them"),
                      .age = now - dropped_at_,
                      .count = num_dropped_});
  }
  return alarms;
}

}  // namespace lodestar::coordinator
