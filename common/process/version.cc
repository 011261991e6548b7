// SPDX-License-Identifier: Apache-2.0

#include "common/process/version.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/build_stamp.h"

namespace lodestar::process {
namespace {

constexpr size_t kCommitHexDigits = 40;
constexpr size_t kShortCommitHexDigits = 10;

#ifdef __clang__
constexpr char kCompiler[] = __VERSION__;
#else
constexpr char kCompiler[] = "gcc " __VERSION__;
#endif

#if defined(__x86_64__)
constexpr char kArchitecture[] = "x86_64";
#elif defined(__aarch64__)
constexpr char kArchitecture[] = "aarch64";
#else
constexpr char kArchitecture[] = "unknown processor";
#endif

#if defined(LODESTAR_SANITIZER)
constexpr char kSanitizer[] = ", with a sanitizer";
#else
constexpr char kSanitizer[] = "";
#endif

}  // namespace

BuildStamp LinkedBuildStamp() {
  const absl::string_view commit = kStampedCommit;
  // If stamping is off, Bazel writes "0".
  if (commit.size() != kCommitHexDigits) return {};
  const std::pair<absl::string_view, absl::string_view> status =
      absl::StrSplit(kStampedStatus, absl::MaxSplits(' ', 1));
  BuildStamp stamp = {.commit = std::string(commit),
                      .has_uncommitted_changes = status.first != "Clean"};
  if (int64_t seconds = 0; absl::SimpleAtoi(status.second, &seconds)) {
    stamp.time = std::max(kReleaseTime, absl::FromUnixSeconds(seconds));
  }
  return stamp;
}

std::string SoftwareVersion(const BuildStamp& stamp) {
  if (stamp.commit.empty()) return kVersion;
  return absl::StrCat(kVersion, "+", stamp.commit.substr(0, kShortCommitHexDigits),
                      stamp.has_uncommitted_changes ? ".modified" : "");
}

std::string VersionText(absl::string_view program, const BuildStamp& stamp) {
  std::string commit = "unknown, because the sources were not a git checkout";
  if (!stamp.commit.empty()) {
    commit =
        absl::StrCat(stamp.commit, stamp.has_uncommitted_changes ? " and uncommitted changes" : "");
  }
  return absl::StrCat(program, " ", kVersion, "\ncommit: ", commit, "\nwire: ", kWireVersion,
                      "\nbuild: ", LODESTAR_COMPILATION_MODE, ", ", kCompiler, ", ", kArchitecture,
                      kSanitizer, "\n");
}

}  // namespace lodestar::process
