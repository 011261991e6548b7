// SPDX-License-Identifier: Apache-2.0

#include "worker/process_age.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/runtime/file_io.h"

namespace lodestar::worker {
namespace {

constexpr int64_t kMaxStatBytes = 8192;
// In proc(5) "starttime" is field 22. Field 2 is the name, which may contain spaces and brackets,
// and ends with the last closing bracket. So the first word after that bracket is field 3.
constexpr size_t kStartTimeAfterName = 22 - 3;

}  // namespace

absl::Duration ProcessAge() {
  const auto stat = ReadWholeFile("/proc/self/stat", kMaxStatBytes);
  timespec since_boot = {};
  if (!stat.ok() || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return absl::ZeroDuration();
  return ProcessAgeFrom(*stat, absl::DurationFromTimespec(since_boot), sysconf(_SC_CLK_TCK));
}

absl::Duration ProcessAgeFrom(absl::string_view stat, absl::Duration since_boot,
                              int64_t ticks_per_second) {
  const size_t name_end = stat.rfind(") ");
  if (name_end == absl::string_view::npos || ticks_per_second <= 0) return absl::ZeroDuration();
  const std::vector<absl::string_view> fields = absl::StrSplit(stat.substr(name_end + 2), ' ');
  int64_t ticks = 0;
  if (fields.size() <= kStartTimeAfterName ||
      !absl::SimpleAtoi(fields[kStartTimeAfterName], &ticks)) {
    return absl::ZeroDuration();
  }
  return std::max(absl::ZeroDuration(), since_boot - absl::Seconds(ticks) / ticks_per_second);
}

}  // namespace lodestar::worker
