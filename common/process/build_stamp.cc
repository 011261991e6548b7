// SPDX-License-Identifier: Apache-2.0

// This file is compiled each time that a stamped program is linked, and at no other time. So after
// a new commit, no other file must be compiled again. Bazel passes the macros, but no compiler
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
