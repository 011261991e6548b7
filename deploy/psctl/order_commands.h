// SPDX-License-Identifier: Apache-2.0

// psctl pause, resume, set-learning-rate, evict and readmit give orders to a job. Each function
// returns the text that psctl prints.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/psctl/cluster_client.h"

namespace lodestar::psctl {

absl::StatusOr<std::string> PauseJob(ClusterClient& client, const std::string& reason);
absl::StatusOr<std::string> ResumeJob(ClusterClient& client);
// Sets the learning rate. `rate` is the text that was typed. Errors also: InvalidArgument (it is
// not a number).
absl::StatusOr<std::string> SetLearningRate(ClusterClient& client, absl::string_view rate);

// Evicts the workers `names`. If one call fails, the others are made also. With `with_certificate`,
// evicts all names of each worker's certificate. Errors: the code of the first failure, with a line
// for each name that says what happened.
absl::StatusOr<std::string> EvictWorkers(ClusterClient& client,
                                         const std::vector<std::string>& names,
                                         const std::string& reason, bool with_certificate);
absl::StatusOr<std::string> ReadmitWorkers(ClusterClient& client,
                                           const std::vector<std::string>& names);

}  // namespace lodestar::psctl
