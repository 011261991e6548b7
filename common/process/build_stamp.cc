// This file is compiled whenever a stamped program is linked, and only then, so that a new commit
// alone makes nothing else out of date. Bazel passes the macros and no compiler options.
#include "common/process/build_stamp.h"

namespace lodestar {

#ifdef BUILD_SCM_REVISION
const char kStampedCommit[] = BUILD_SCM_REVISION;
const char kStampedStatus[] = BUILD_SCM_STATUS;
#else
const char kStampedCommit[] = "";
const char kStampedStatus[] = "";
#endif

}  // namespace lodestar
