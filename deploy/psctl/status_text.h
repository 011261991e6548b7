// A cluster's status as text for people. Scripts use --json.
#pragma once

#include <string>

#include "deploy/psctl/text_table.h"
#include "proto/status_service.pb.h"

namespace lodestar {

// Of lines with at most `columns` characters, or kUnlimitedColumns. Job, progress, open round,
// shards, checkpoint, alarms, workers.
std::string StatusText(const v1::ClusterStatus& status, int columns);

// One line per worker under a line of column names; where it is too narrow, without the columns
// that count least.
std::string WorkersText(const v1::ClusterStatus& status, int columns);

}  // namespace lodestar
