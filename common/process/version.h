// SPDX-License-Identifier: Apache-2.0

// The version of this build, its sources, and the version of the wire protocol.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::process {

inline constexpr char kVersion[] = "0.1.0";

// Version of the wire protocol. It is raised with every change of proto/ that an older peer would
// misread. Peers with another number are refused.
inline constexpr uint32_t kWireVersion = 3;

// Release time of kVersion. Sources of later builds are never older.
inline constexpr absl::Time kReleaseTime = absl::FromUnixSeconds(1'795'219'200);  // 2026-11-21

// Identifies the sources that a program was linked from.
struct BuildStamp {
  std::string commit;  // 40 hex digits; empty means that the sources were not a git checkout
  bool has_uncommitted_changes = false;
  // Time when the sources were committed. A clock that shows an earlier time is wrong.
  absl::Time time = kReleaseTime;
};

// Returns the stamp of this program. Tests are not stamped, so their commit is empty.
BuildStamp LinkedBuildStamp();

// Returns kVersion with the commit as semantic versioning's build metadata: "0.1.0+4c92bfa100",
// "0.1.0+4c92bfa100.modified", or "0.1.0" if there is no commit.
std::string SoftwareVersion(const BuildStamp& stamp = LinkedBuildStamp());

// Returns the output of `program` --version: version, commit, wire version, compiler and compiler
// options.
std::string VersionText(absl::string_view program, const BuildStamp& stamp = LinkedBuildStamp());

}  // namespace lodestar::process
