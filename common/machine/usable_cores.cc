// SPDX-License-Identifier: Apache-2.0

#include "common/machine/usable_cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/machine/control_groups.h"

namespace lodestar::machine {
namespace {

int CoresOfAffinity() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
  // sched_getaffinity() has failed, because the machine has more cores than cpu_set_t has room for.
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

// Returns processor time per period, rounded up to whole cores. nullopt means no limit.
std::optional<int64_t> CoresOf(absl::string_view quota, absl::string_view period) {
  int64_t quota_us = 0;
  int64_t period_us = 0;
  // If there is no limit, the quota is "max" in version 2 and -1 in version 1.
  if (!absl::SimpleAtoi(quota, &quota_us) || !absl::SimpleAtoi(period, &period_us) ||
      quota_us <= 0 || period_us <= 0) {
    return std::nullopt;
  }
  return (quota_us - 1) / period_us + 1;
}

std::optional<int64_t> QuotaOfGroup(GroupVersion version, const std::string& folder) {
  if (version == GroupVersion::kFirst) {
    const auto word = [&folder](absl::string_view name) {
      return std::string(absl::StripAsciiWhitespace(KernelText(absl::StrCat(folder, "/", name))));
    };
    return CoresOf(word("cpu.cfs_quota_us"), word("cpu.cfs_period_us"));
  }
  const std::string text = KernelText(absl::StrCat(folder, "/cpu.max"));  // "150000 100000"
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  return words.size() == 2 ? CoresOf(words[0], words[1]) : std::nullopt;
}

}  // namespace

int CoresWithinQuota(int num_cores, const std::string& root) {
  int64_t cores = num_cores;
  ForEachControlGroup(root, "cpu",
                      [&](GroupVersion version, const std::string& folder, const std::string&) {
                        cores = std::min(cores, QuotaOfGroup(version, folder).value_or(cores));
                      });
  return static_cast<int>(std::max<int64_t>(cores, 1));
}

int UsableCores() { return CoresWithinQuota(CoresOfAffinity(), /*root=*/""); }

}  // namespace lodestar::machine
