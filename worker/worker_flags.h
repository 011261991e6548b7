// These are the flags of gpu_worker and their checks. Flags are read here and nowhere else.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "common/logging/logging.h"
#include "worker/built_in_workload.h"
#include "worker/notice/notice_source_factory.h"
#include "worker/notice/notice_watch.h"
#include "worker/worker.h"
#include "worker/worker_entry.h"

namespace lodestar::worker {

struct WorkerFlags {
  Worker::Config worker;
  BuiltInWorkloadConfig workload;
  WorkerEntrance entrance;
  std::optional<notice::NoticeOrigin> notice;  // if not set, notice is given by signals only
  notice::NoticeWatch::Config notice_watch;
  absl::Duration stall_timeout;  // see StallWatch
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
};

// Checks the values set by ParseCommandLine(). `given` has the names of the flags that were set.
// Errors: InvalidArgument naming the flag, the value and what is allowed, or naming a flag that has
// no effect and the flags with which it would have one.
absl::StatusOr<WorkerFlags> ReadWorkerFlags(const std::set<std::string>& given);

// Return what --helpfull and --help print.
std::string WorkerHelp();
std::string WorkerShortHelp();

}  // namespace lodestar::worker
