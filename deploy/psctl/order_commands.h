// psctl pause, resume, set-learning-rate, evict and readmit: what operators order of a job. Each
// returns what is to be printed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/psctl/cluster_client.h"

namespace lodestar {

absl::StatusOr<std::string> PauseJob(ClusterClient& client, const std::string& reason);
absl::StatusOr<std::string> ResumeJob(ClusterClient& client);
// `rate`: a number, as it was typed. Errors also: InvalidArgument: it is none.
absl::StatusOr<std::string> SetLearningRate(ClusterClient& client, absl::string_view rate);

// Every name is tried. Errors: the first one's, with what has become of each in a line of its own.
// `with_certificate`: each with all names of its certificate.
absl::StatusOr<std::string> EvictWorkers(ClusterClient& client,
                                         const std::vector<std::string>& names,
                                         const std::string& reason, bool with_certificate);
absl::StatusOr<std::string> ReadmitWorkers(ClusterClient& client,
                                           const std::vector<std::string>& names);

}  // namespace lodestar
