// psctl events, logs and top: a job as it goes on.
#pragma once

#include "absl/status/status.h"
#include "common/logging/log_tail.h"
#include "deploy/psctl/cluster_client.h"

namespace lodestar {

// Prints the events that the server still has, and, with `follows`, those that come, across its
// restarts, until the job is over.
absl::Status ShowEvents(ClusterClient& client, bool follows, bool as_json, int columns);

// Prints lines of the server's log that fit `query`, the newest `query.most_lines` of those that
// are there, and, with `follows`, those that come, across its restarts, until the job is over.
absl::Status ShowLog(ClusterClient& client, const LogQuery& query, bool follows, bool as_json);

// Fills the terminal with the job until 'q', or until the job is over. Where there is no terminal,
// one picture.
absl::Status ShowTop(ClusterClient& client);

}  // namespace lodestar
