// The alarms of a job: bounded, repeats are counted. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/cluster_snapshot.h"

namespace lodestar {

enum class AlarmKind : uint8_t {
  kAlarm,     // something went wrong
  kReminder,  // what the job was started with and its operator should not forget
};

class AlarmBook {
 public:
  static constexpr int kMaxAlarms = 32;

  // True if there was none of this text. Beyond kMaxAlarms, the one that has been quiet longest
  // goes, reminders last. `subject` is what End() finds it by. Empty means that it has no end.
  bool Raise(absl::string_view text, absl::Time now, AlarmKind kind = AlarmKind::kAlarm,
             absl::string_view subject = "");
  // What alarms of this subject tell of is over, as far as they were last raised by `raised_by`.
  void End(absl::string_view subject, absl::Time raised_by, absl::Time now);
  // The latest first.
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
  std::vector<Entry> entries_;  // the latest last
};

}  // namespace lodestar
