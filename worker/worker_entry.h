// SPDX-License-Identifier: Apache-2.0

// Names a worker, and gets its credentials and the coordinator's address. gpu_worker and programs
// that compute themselves use it.
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

// Returns a name from host and process, such as "gpu-box-4711".
std::string DefaultWorkerName();
uint64_t RandomInstanceId();

// What a worker was told about its cluster and its name.
struct WorkerEntrance {
  security::SecurityFlags security;
  std::string coordinator;  // HOST:PORT[,HOST:PORT...]
  // True if `coordinator` was given. Otherwise a join string has the address.
  bool has_coordinator = false;
  std::string name;  // Empty means that the worker has no name yet, and any name will do.
};

// Whether there is a way that is not plain text to another machine. `flag` has said where the
// coordinator is. Errors: InvalidArgument, with what may be given; those of CheckGrpcEnvironment().
absl::Status CheckMayEnter(const WorkerEntrance& entrance, absl::string_view flag = "coordinator");

// Credentials of a worker that has joined. The object keeps them valid.
class WorkerCredentials {
 public:
  // Does the same as AwaitEntry(). Then fills in security, name and coordinator of *config.
  static absl::StatusOr<std::unique_ptr<WorkerCredentials>> Await(
      const WorkerEntrance& entrance, const std::function<bool()>& is_interrupted,
      Worker::Config* config);

  // Must be called with the result of the worker. If a server has refused the credentials for good,
  // they are not used again.
  void OnEnd(const absl::Status& outcome) const;

 private:
  explicit WorkerCredentials(const wire::ClusterEntry& entry);

  const wire::ClusterEntry entry_;
  std::optional<wire::CredentialRenewer> renewer_;
};

}  // namespace lodestar::worker
