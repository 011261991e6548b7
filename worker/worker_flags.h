// The flags of gpu_worker and their checks; read here and nowhere else.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "common/logging.h"
#include "worker/built_in_workload.h"
#include "worker/notice/notice_source_factory.h"
#include "worker/notice/notice_watch.h"
#include "worker/worker.h"
#include "worker/worker_entry.h"

namespace lodestar {

struct WorkerFlags {
  Worker::Config worker;
  BuiltInWorkloadConfig workload;
  WorkerEntrance entrance;
  std::optional<NoticeOrigin> notice;  // not set: nobody gives notice but with signals
  NoticeWatch::Config notice_watch;
  absl::Duration stall_timeout;  // see StallWatch
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
};

// Checks the values set by ParseCommandLine(). `given`: names of the flags that were set.
// Errors: InvalidArgument naming the flag, the value and what is allowed, or a flag that has no
// effect and what it would count with.
absl::StatusOr<WorkerFlags> ReadWorkerFlags(const std::set<std::string>& given);

// What --helpfull and --help print.
std::string WorkerHelp();
std::string WorkerShortHelp();

}  // namespace lodestar
