// SPDX-License-Identifier: Apache-2.0

// psctl events, logs and top show a job while it runs.
#pragma once

#include "absl/status/status.h"
#include "common/logging/log_tail.h"
#include "deploy/psctl/cluster_client.h"

namespace lodestar::psctl {

// Prints the events that the server still has. With `follows`, also prints new events until the job
// is over, across restarts of the server.
absl::Status ShowEvents(ClusterClient& client, bool follows, bool as_json, int columns);

// Prints the newest `query.most_lines` lines of the server's log that match `query`. With
// `follows`, also prints new lines until the job is over, across restarts of the server.
absl::Status ShowLog(ClusterClient& client, const logging::LogQuery& query, bool follows,
                     bool as_json);

// Shows the job on the whole terminal until 'q' is typed or the job is over. If the output is not a
// terminal, prints one picture.
absl::Status ShowTop(ClusterClient& client);

}  // namespace lodestar::psctl
