// SPDX-License-Identifier: Apache-2.0

// The flags of gpu_worker and their checks. Flags are read here and nowhere else.
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
  // The source of the notice that this machine will stop. Not set means that the worker asks no
  // source, and only signals stop it.
  std::optional<notice::NoticeOrigin> notice;
  notice::NoticeWatch::Config notice_watch;
  absl::Duration stall_timeout;  // See StallWatch.
  logging::LogLevel log_level = logging::LogLevel::kInfo;
  logging::LogFormat log_format = logging::LogFormat::kText;
};

// Checks the values set by ParseCommandLine(). `given` has the names of the flags that were set.
// Errors: InvalidArgument naming the flag, and:
// - the value and what is allowed, if the value is wrong;
// - the flags that it needs, if the flag has no effect.
absl::StatusOr<WorkerFlags> ReadWorkerFlags(const std::set<std::string>& given);

// Return the texts of --helpfull and --help.
std::string WorkerHelp();
std::string WorkerShortHelp();

}  // namespace lodestar::worker
