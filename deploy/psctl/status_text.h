// A cluster's status as text for people. Columns are stable; scripts use --json.
#pragma once

#include <string>

#include "proto/status_service.pb.h"

namespace lodestar {

// Several lines: job, progress, open round, workers, shards, checkpoint, alarms.
std::string StatusText(const v1::ClusterStatus& status);

// One line per worker under a line of column names.
std::string WorkersText(const v1::ClusterStatus& status);

// 1536 -> "1.5 KiB".
std::string FormatBytes(double bytes);

}  // namespace lodestar
