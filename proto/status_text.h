// SPDX-License-Identifier: Apache-2.0

// Formats a cluster's status as text for users. Scripts use --json.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/runtime/text_table.h"
#include "proto/status_service.pb.h"

namespace lodestar::wire {

// Returns the status in lines of at most `columns` characters. kUnlimitedColumns means no limit.
// The text has the job, progress, the open round, shards, the checkpoint, alarms and workers.
std::string StatusText(const v1::ClusterStatus& status, int columns);

// Return parts of the status: all text above the tables, and the table of servers.
std::string StatusHeadText(const v1::ClusterStatus& status, int columns);
std::string ShardsText(const v1::ClusterStatus& status, int columns);

// Returns text about weights that psctl export has fetched from `server`: "the weights of job gpt
// at HOST:PORT after ...".
std::string ExportText(const v1::ExportSource& source, absl::string_view server);

// Returns text about a job that psctl stop has stopped: its result, and where its last checkpoint
// is.
std::string StopText(const v1::StopReply& reply, absl::string_view server);

// Returns a line of column names and one line per worker. If there is no space for all columns, the
// least important ones are left out.
std::string WorkersText(const v1::ClusterStatus& status, int columns);

}  // namespace lodestar::wire
