// SPDX-License-Identifier: Apache-2.0

// Bazel compiles this file when it links a stamped program, and at no other time. So a new commit
// makes no other file compile again. Bazel defines the macros below, but passes no compiler
// options.
#include "common/process/build_stamp.h"

namespace lodestar::process {

#ifdef BUILD_SCM_REVISION
const char kStampedCommit[] = BUILD_SCM_REVISION;
const char kStampedStatus[] = BUILD_SCM_STATUS;
#else
const char kStampedCommit[] = "";
const char kStampedStatus[] = "";
#endif

}  // namespace lodestar::process
