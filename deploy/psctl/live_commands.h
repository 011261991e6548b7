// psctl events and top: a job as it goes on.
#pragma once

#include "absl/status/status.h"
#include "deploy/psctl/cluster_client.h"

namespace lodestar {

// Prints the events that the server still has, and, with `follows`, those that come, across its
// restarts, until the job is over.
absl::Status ShowEvents(ClusterClient& client, bool follows, bool as_json, int columns);

// Fills the terminal with the job until 'q', or until the job is over. Where there is no terminal,
// one picture.
absl::Status ShowTop(ClusterClient& client);

}  // namespace lodestar
