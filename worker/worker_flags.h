// The flags of gpu_worker and their checks; read here and nowhere else.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/logging.h"
#include "worker/worker.h"

namespace lodestar {

struct WorkerFlags {
  Worker::Config worker;
  LogLevel log_level = LogLevel::kInfo;
};

// Checks the values set by ParseCommandLine().
// Errors: InvalidArgument naming the flag, the value and what is allowed.
absl::StatusOr<WorkerFlags> ReadWorkerFlags();

// What --help shows.
std::string WorkerHelp();

}  // namespace lodestar
