// SPDX-License-Identifier: Apache-2.0

// ResidualFolder is a folder in --state_dir that one process holds at a time. A worker keeps data
// in it for the next process of the same name: the residual of error feedback and, once the worker
// was told to stop, the state of its inner optimizer.
//
// The folder also has the instance number by which the servers know the process. If a new process
// starts within the lease, it sends this number and goes on with the life of the earlier process.
// In this way the work of the current round is not lost. The instance is written when a process
// joins a job whose residual is kept, and removed when the process ends by itself.
//
// Do not copy the folder to another machine and start a worker of the same name there while the
// first one runs. Two processes would then share one life.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "common/runtime/clock.h"
#include "worker/trainer/inner_state_store.h"
#include "worker/trainer/residual_store.h"

namespace lodestar::worker {

// Says in which jobs with error feedback the residual is kept on disk.
enum class KeepResiduals : uint8_t {
  kNever,
  // Only in jobs with local steps, where rounds are long compared with the time of a write.
  kLocalSteps,
  // In all jobs. Without local steps, each step then waits for the disk.
  kAlways,
};
// Parses never, local_steps or always. `what` names the flag in errors. Errors: InvalidArgument
// naming what is allowed.
absl::StatusOr<KeepResiduals> ParseKeepResiduals(absl::string_view what, absl::string_view text);
bool KeepsResidual(KeepResiduals keep, const job::JobSpec& job);

// Returns the folder of the worker `worker_name`. Empty if one of the arguments is empty, because a
// later process could not find the folder again.
std::string ResidualFolderIn(absl::string_view state_dir, absl::string_view worker_name);

class ResidualFolder {
 public:
  // Maximum time to wait for the folder. A killed process holds the folder until the system has
  // freed the memory of the process.
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  // Takes the folder. If it does not exist, makes it for this user only. While another process
  // holds the folder, waits for up to `patience`. Errors: AlreadyExists if the other process still
  // holds the folder after `patience`; those of the system.
  static absl::StatusOr<std::unique_ptr<ResidualFolder>> Take(const std::string& path,
                                                              const std::string& worker_name,
                                                              Clock* clock,
                                                              absl::Duration patience = kPatience);
  ~ResidualFolder();
  ResidualFolder(const ResidualFolder&) = delete;
  ResidualFolder& operator=(const ResidualFolder&) = delete;

  trainer::ResidualStore* store() { return &store_; }
  trainer::InnerStateStore* inner_states() { return &inner_states_; }
  // Returns the instance number of the earlier process, if that process was killed. 0 means that
  // there is none.
  uint64_t former_instance() const { return former_instance_; }
  // Write and remove the file with the instance number. Both return when the change is on disk.
  // Errors: those of the system.
  absl::Status WriteInstance(uint64_t instance_id);
  absl::Status RemoveInstance();

 private:
  ResidualFolder(const std::string& path, const std::string& worker_name, int lock);

  const std::string instance_path_;
  const int lock_;
  uint64_t former_instance_ = 0;
  trainer::ResidualStore store_;
  trainer::InnerStateStore inner_states_;
};

}  // namespace lodestar::worker
