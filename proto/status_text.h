// A cluster's status as text for people. Scripts use --json.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/runtime/text_table.h"
#include "proto/status_service.pb.h"

namespace lodestar::wire {

// The text has lines with at most `columns` characters; kUnlimitedColumns means no limit. It has
// the job, progress, the open round, shards, the checkpoint, alarms and workers.
std::string StatusText(const v1::ClusterStatus& status, int columns);

// Return its parts: all above the tables, and the table of servers.
std::string StatusHeadText(const v1::ClusterStatus& status, int columns);
std::string ShardsText(const v1::ClusterStatus& status, int columns);

// What psctl export has fetched from `server`: "the weights of job gpt at HOST:PORT after ...".
std::string ExportText(const v1::ExportSource& source, absl::string_view server);

// What has become of the job that psctl stop has stopped, and where its last checkpoint is.
std::string StopText(const v1::StopReply& reply, absl::string_view server);

// One line per worker under a line of column names; where it is too narrow, without the columns
// that count least.
std::string WorkersText(const v1::ClusterStatus& status, int columns);

}  // namespace lodestar::wire
