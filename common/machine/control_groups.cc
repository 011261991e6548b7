// SPDX-License-Identifier: Apache-2.0

#include "common/machine/control_groups.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/runtime/file_io.h"

namespace lodestar::machine {

std::string KernelText(const std::string& path) {
  constexpr int64_t kMaxBytes = 1 << 20;
  return ReadWholeFile(path, kMaxBytes).value_or("");
}

// Reads the lines of /proc/self/cgroup: "0::/path" is version 2, "4:memory,blkio:/path" is version
// 1.
void ForEachControlGroup(const std::string& root, absl::string_view controller,
                         absl::FunctionRef<void(GroupVersion version, const std::string& folder,
                                                const std::string& name)>
                             visit) {
  const std::string lines = KernelText(absl::StrCat(root, "/proc/self/cgroup"));
  for (absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    const bool is_second = fields[1].empty();
    if (!is_second &&
        std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) {
      continue;
    }
    const GroupVersion version = is_second ? GroupVersion::kSecond : GroupVersion::kFirst;
    const std::string mount =
        absl::StrCat(root, "/sys/fs/cgroup", is_second ? "" : "/", is_second ? "" : controller);
    visit(version, mount, "/");
    std::string group;
    for (absl::string_view part : absl::StrSplit(fields[2], '/', absl::SkipEmpty())) {
      if (part == "..") break;  // a path outside the part of the tree that this process may see
      absl::StrAppend(&group, "/", part);
      visit(version, absl::StrCat(mount, group), group);
    }
  }
}

}  // namespace lodestar::machine
