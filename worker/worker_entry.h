// How a worker comes into its cluster: name, credentials, addresses. The same for gpu_worker and
// for programs that compute themselves.
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

// "gpu-box-4711", of host and process.
std::string DefaultWorkerName();
uint64_t RandomInstanceId();

// What a worker was told of where it is to go, and as whom.
struct WorkerEntrance {
  SecurityFlags security;
  std::string coordinator;       // HOST:PORT[,HOST:PORT...]
  bool has_coordinator = false;  // it was told; else a join string says where it is
  std::string name;              // empty: any
};

// Whether there is a way that is not plain text to another machine. `flag` has said where the
// coordinator is. Errors: InvalidArgument, with what may be given.
absl::Status CheckMayEnter(const WorkerEntrance& entrance, absl::string_view flag = "coordinator");

// The credentials of a worker that has come in; keeps them valid while it exists.
class WorkerCredentials {
 public:
  // As AwaitEntry(); then fills in security, name and coordinator of *config.
  static absl::StatusOr<std::unique_ptr<WorkerCredentials>> Await(
      const WorkerEntrance& entrance, const std::function<bool()>& is_interrupted,
      Worker::Config* config);

  // The worker has ended like this: what a server has called worth nothing is not used again.
  void OnEnd(const absl::Status& outcome) const;

 private:
  explicit WorkerCredentials(const wire::ClusterEntry& entry);

  const wire::ClusterEntry entry_;
  std::optional<wire::CredentialRenewer> renewer_;
};

}  // namespace lodestar::worker
