// SPDX-License-Identifier: Apache-2.0

// Chooses a worker's name, and gets its credentials and the coordinator's address. Used by
// gpu_worker and by programs that compute themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/security_flags.h"
#include "proto/cluster_entry.h"
#include "worker/worker.h"

namespace lodestar::worker {

// Returns a name that is made from host name and process ID, such as "gpu-box-4711".
std::string DefaultWorkerName();
uint64_t RandomInstanceId();

// The name of a worker, and what its user has given to find and join the cluster.
struct WorkerEntrance {
  security::SecurityFlags security;
  std::string coordinator;  // HOST:PORT[,HOST:PORT...]
  // True if the user has given `coordinator`. If false, an address in the join string replaces it.
  bool has_coordinator = false;
  // Empty means that the user has given no name, and any name may be chosen.
  std::string name;
};

// Checks that the worker can enter the cluster without sending plain text to another machine.
// `flag` names the flag of the coordinator's address in messages. Errors: InvalidArgument naming
// the flags with which the worker could enter; those of CheckGrpcEnvironment().
absl::Status CheckMayEnter(const WorkerEntrance& entrance, absl::string_view flag = "coordinator");

// Credentials of a worker that has joined. They are renewed as long as the object exists.
class WorkerCredentials {
 public:
  // Waits like AwaitEntry() until the worker may join. Then sets security, name and coordinator of
  // *config.
  static absl::StatusOr<std::unique_ptr<WorkerCredentials>> Await(
      const WorkerEntrance& entrance, const std::function<bool()>& is_interrupted,
      Worker::Config* config);

  // Must be called with the result of the worker. If a server has refused the worker's certificate,
  // removes the certificate.
  void OnEnd(const absl::Status& outcome) const;

 private:
  explicit WorkerCredentials(const wire::ClusterEntry& entry);

  const wire::ClusterEntry entry_;
  std::optional<wire::CredentialRenewer> renewer_;
};

}  // namespace lodestar::worker
