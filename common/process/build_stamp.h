// SPDX-License-Identifier: Apache-2.0

// Output of common/workspace_status.sh at the time when a program was linked. Only
// common/process/version.cc reads it.
#pragma once

namespace lodestar::process {

// The commit of the sources. Empty means that the sources were not a git checkout. "0" means that
// the program is not stamped.
extern const char kStampedCommit[];
// "Clean" or "Modified", then the time of the commit in seconds since 1970, such as "Clean
// 1795219200".
extern const char kStampedStatus[];

}  // namespace lodestar::process
