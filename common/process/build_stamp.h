// What common/workspace_status.sh said when a program was linked. Read by common/process/version.cc
// only.
#pragma once

namespace lodestar {

extern const char kStampedCommit[];  // empty: no git checkout; "0": a program that is not stamped
extern const char kStampedStatus[];  // "Clean" or "Modified", and the commit's time: "Clean 1795"

}  // namespace lodestar
