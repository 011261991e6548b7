// The alarms of a job: bounded, repeats are counted. Pure data.
#pragma once

#include <cstdint>
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
  // goes, reminders last.
  bool Raise(absl::string_view text, absl::Time now, AlarmKind kind = AlarmKind::kAlarm);
  // The latest first.
  std::vector<AlarmSnapshot> Snapshot(absl::Time now) const;

 private:
  struct Entry {
    std::string text;
    AlarmKind kind = AlarmKind::kAlarm;
    absl::Time raised_at;
    uint64_t count = 0;
  };
  std::vector<Entry> entries_;  // the latest last
};

}  // namespace lodestar
