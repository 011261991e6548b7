// SPDX-License-Identifier: Apache-2.0

#include "common/machine/host_memory.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/machine/control_groups.h"

namespace lodestar::machine {
namespace {

constexpr int64_t kPageBytes = 4096;  // unit of /proc/self/statm on x86-64
constexpr int64_t kKibibyte = 1024;

std::optional<int64_t> ParseCount(absl::string_view text) {
  int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 0) return std::nullopt;
  return count;
}

// Returns the first number after `name` in the line that begins with `name`, such as "MemTotal:
// 24684092 kB".
std::optional<int64_t> CountBehind(absl::string_view text, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(name.size()), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    return words.empty() ? std::nullopt : ParseCount(words.front());
  }
  return std::nullopt;
}

// Sets *memory to `limit` if `limit` has less available memory.
void Narrow(HostMemory limit, HostMemory* memory) {
  limit.available_bytes = std::clamp<int64_t>(limit.available_bytes, 0, limit.total_bytes);
  if (memory->total_bytes == 0) {
    *memory = std::move(limit);
    return;
  }
  memory->total_bytes = std::min(memory->total_bytes, limit.total_bytes);
  if (limit.available_bytes >= memory->available_bytes) return;
  memory->available_bytes = limit.available_bytes;
  memory->limited_by = std::move(limit.limited_by);
}

// Names of the files with the memory numbers of a control group, which depend on the version of
// control groups.
struct GroupFiles {
  const char* limit;
  const char* usage;
  // Lines of memory.stat whose bytes can be freed, such as cached files.
  std::vector<const char*> reclaimable;
};

void NarrowByGroup(const std::string& folder, const std::string& name, const GroupFiles& files,
                   HostMemory* memory) {
  // If there is no limit, the file says "max" or a number larger than any machine's memory.
  const auto limit = ParseCount(KernelText(absl::StrCat(folder, "/", files.limit)));
  const auto usage = ParseCount(KernelText(absl::StrCat(folder, "/", files.usage)));
  if (!limit.has_value() || !usage.has_value()) return;
  const std::string stat = KernelText(absl::StrCat(folder, "/memory.stat"));
  int64_t reclaimable = 0;
  for (const char* line : files.reclaimable) {
    reclaimable += CountBehind(stat, absl::StrCat(line, " ")).value_or(0);
  }
  Narrow({.total_bytes = *limit,
          .available_bytes = *limit - std::max<int64_t>(0, *usage - reclaimable),
          .limited_by = absl::StrCat("the control group ", name)},
         memory);
}

void NarrowByControlGroups(const std::string& root, HostMemory* memory) {
  const GroupFiles second = {"memory.max", "memory.current", {"inactive_file", "active_file"}};
  const GroupFiles first = {"memory.limit_in_bytes",
                            "memory.usage_in_bytes",
                            {"total_inactive_file", "total_active_file"}};
  ForEachControlGroup(
      root, "memory",
      [&](GroupVersion version, const std::string& folder, const std::string& name) {
        NarrowByGroup(folder, name, version == GroupVersion::kSecond ? second : first, memory);
      });
}

void NarrowByOwnLimits(const std::string& root, HostMemory* memory) {
  const std::string limits = KernelText(absl::StrCat(root, "/proc/self/limits"));
  // Columns, in pages: size, resident, shared, text, 0, data and stack.
  const std::string counts = KernelText(absl::StrCat(root, "/proc/self/statm"));
  const std::vector<absl::string_view> statm =
      absl::StrSplit(counts, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  if (statm.size() < 6) return;
  const auto narrow = [&](absl::string_view line, absl::string_view pages, const char* name) {
    const auto limit = CountBehind(limits, line);  // nullopt: the text is "unlimited"
    const auto used = ParseCount(pages);
    if (!limit.has_value() || !used.has_value()) return;
    Narrow(
        {.total_bytes = *limit, .available_bytes = *limit - *used * kPageBytes, .limited_by = name},
        memory);
  };
  narrow("Max address space", statm[0], "ulimit -v");
  narrow("Max data size", statm[5], "ulimit -d");
}

}  // namespace

HostMemory ReadHostMemory(const std::string& root) {
  HostMemory memory;
  const std::string meminfo = KernelText(absl::StrCat(root, "/proc/meminfo"));
  if (const auto total = CountBehind(meminfo, "MemTotal:"); total.has_value()) {
    const int64_t available = CountBehind(meminfo, "MemAvailable:").value_or(*total);
    Narrow({.total_bytes = *total * kKibibyte,
            .available_bytes = available * kKibibyte,
            .limited_by = "this machine"},
           &memory);
  }
  NarrowByControlGroups(root, &memory);
  NarrowByOwnLimits(root, &memory);
  return memory;
}

}  // namespace lodestar::machine
