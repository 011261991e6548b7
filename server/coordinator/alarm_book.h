// SPDX-License-Identifier: Apache-2.0

// Holds the alarms of a job. Their number is limited, and an alarm that is raised again is counted.
// Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/cluster_snapshot.h"

namespace lodestar::coordinator {

enum class AlarmKind : uint8_t {
  kAlarm,     // something went wrong
  kReminder,  // a setting of the job that its operator should not forget
};

class AlarmBook {
 public:
  static constexpr int kMaxAlarms = 32;

  // Adds an alarm. If there is an alarm with this text, counts that alarm once more instead.
  // Returns true if the alarm is new. If there are kMaxAlarms already, the new alarm replaces the
  // one that was not raised for the longest time. It replaces a reminder only if all alarms are
  // reminders. End() ends the alarms with this `subject`. An empty subject means that the alarm
  // does not end.
  bool Raise(absl::string_view text, absl::Time now, AlarmKind kind = AlarmKind::kAlarm,
             absl::string_view subject = "");
  // Marks the alarms of this subject as over, except those that were raised after the time
  // `raised_by`.
  void End(absl::string_view subject, absl::Time raised_by, absl::Time now);
  // Returns the alarms, those that were raised last first.
  std::vector<AlarmSnapshot> Snapshot(absl::Time now) const;

 private:
  struct Entry {
    std::string text;
    AlarmKind kind = AlarmKind::kAlarm;
    std::string subject;
    absl::Time raised_at;
    uint64_t count = 0;
    std::optional<absl::Time> over_since = std::nullopt;
  };
  std::vector<Entry> entries_;  // ordered by raised_at, the latest last
};

}  // namespace lodestar::coordinator
