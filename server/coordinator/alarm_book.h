// SPDX-License-Identifier: Apache-2.0

// Holds the alarms of a job. Their number is limited, and an alarm that is raised again is counted.
// If the limit removes an alarm that may still hold, one more alarm says so. Pure data.
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

  // Adds an alarm. If there is an alarm with this subject, or else one with this text, counts that
  // alarm once more instead and gives it this text. Returns true if the alarm or its text is new.
  // If there are kMaxAlarms already, the new alarm replaces another one: one that is over, or else
  // one that is not a reminder, or else a reminder. Of these, it replaces the one that was not
  // raised for the longest time. End() ends the alarm with this `subject`. An empty subject means
  // that the alarm does not end.
  bool Raise(absl::string_view text, absl::Time now, AlarmKind kind = AlarmKind::kAlarm,
             absl::string_view subject = "");
  // Marks the alarm of this subject as over, unless it was raised after the time `raised_by`.
  void End(absl::string_view subject, absl::Time raised_by, absl::Time now);
  // Returns true if the alarm of this subject is not over.
  bool Holds(absl::string_view subject) const;
  // Returns the alarms, those that were raised last first. If alarms that were not over have been
  // replaced, the last entry says so, and its count is their number.
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
  void MakeRoom(absl::Time now);

  std::vector<Entry> entries_;  // ordered by raised_at, the latest last
  uint64_t num_dropped_ = 0;    // alarms that were not over when others replaced them
  absl::Time dropped_at_;       // the last of them
};

}  // namespace lodestar::coordinator
