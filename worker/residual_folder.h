// SPDX-License-Identifier: Apache-2.0

// ResidualFolder is a folder in --state_dir that one process uses at a time. A worker stores data
// in it for the next process of the same name:
// - the residual of error feedback;
// - the state of its inner optimizer, once the worker was told to stop;
// - the instance number by which the servers know the process.
//
// The instance number helps if a process is killed. If the next process starts before the lease
// ends, it sends this number and continues the life of the killed process. So the work of the
// current round is not lost. A process writes the number when it joins a job whose residual is
// stored. It removes the number when it ends by itself.
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

// Says in which jobs with error feedback the worker stores the residual on disk.
enum class KeepResiduals : uint8_t {
  kNever,
  // Only in jobs with local steps, where a round takes much longer than a write.
  kLocalSteps,
  // In all jobs. Without local steps, each step then waits for the disk.
  kAlways,
};
// Parses never, local_steps or always. `what` names the flag in errors. Errors: InvalidArgument
// naming what is allowed.
absl::StatusOr<KeepResiduals> ParseKeepResiduals(absl::string_view what, absl::string_view text);
bool KeepsResidual(KeepResiduals keep, const job::JobSpec& job);

// Returns the folder of the worker `worker_name`. Returns an empty path if one of the arguments is
// empty, because a later process could not find the folder again.
std::string ResidualFolderIn(absl::string_view state_dir, absl::string_view worker_name);

class ResidualFolder {
 public:
  // Maximum time to wait for the folder. A killed process occupies the folder until the system has
  // freed its memory.
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  // Opens the folder for this process alone. If the folder does not exist, makes it for this user
  // only. If another process uses the folder, waits for up to `patience`. Errors: AlreadyExists (if
  // the other process still uses the folder after `patience`); those of the system.
  static absl::StatusOr<std::unique_ptr<ResidualFolder>> Take(const std::string& path,
                                                              const std::string& worker_name,
                                                              Clock* clock,
                                                              absl::Duration patience = kPatience);
  ~ResidualFolder();
  ResidualFolder(const ResidualFolder&) = delete;
  ResidualFolder& operator=(const ResidualFolder&) = delete;

  trainer::ResidualStore* store() { return &store_; }
  trainer::InnerStateStore* inner_states() { return &inner_states_; }
  // Returns the instance number of the earlier process, if that process was killed. Otherwise
  // returns 0.
  uint64_t former_instance() const { return former_instance_; }
  // Write and remove the file with the instance number. Return when the change is on disk. Errors:
  // those of the system.
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
