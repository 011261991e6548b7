// What this build is called, what it was built from, and which wire it speaks.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

inline constexpr char kVersion[] = "0.1.0";

// Raised by every change of proto/ that an older peer would misread. Peers refuse another number.
inline constexpr uint32_t kWireVersion = 3;

// When kVersion was released. No sources of a later build are older.
inline constexpr absl::Time kReleaseTime = absl::FromUnixSeconds(1'795'219'200);  // 2026-11-21

// The sources that a program was last linked from.
struct BuildStamp {
  std::string commit;  // 40 hex digits; empty: the sources were no git checkout
  bool has_uncommitted_changes = false;
  // When the sources were committed. A clock that shows an earlier time is wrong.
  absl::Time time = kReleaseTime;
};

// Returns the stamp of this program. Tests are not stamped: their commit is empty.
BuildStamp LinkedBuildStamp();

// kVersion with the commit as semantic versioning's build metadata: "0.1.0+4c92bfa100",
// "0.1.0+4c92bfa100.modified", or "0.1.0" if there is no commit.
std::string SoftwareVersion(const BuildStamp& stamp = LinkedBuildStamp());

// What `program` --version prints: version, commit, wire version, compiler and its options.
std::string VersionText(absl::string_view program, const BuildStamp& stamp = LinkedBuildStamp());

}  // namespace lodestar
