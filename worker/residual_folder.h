// ResidualFolder is a folder in --state_dir that one process holds at a time. In it a worker keeps
// data for the next process of its name: the residual of error feedback and, once the worker was
// told to stop, the state of its inner optimizer.
//
// The folder also has the instance by which the servers know the process. If the process begins
// again within the lease, it shows this instance. It then goes on with the life of the process
// before, whose round at hand is not lost. The instance is there as long as a process is in a job
// whose residual is kept, and has not ended by itself.
//
// Do not copy the folder to another machine and start a worker of the same name there while the
// first one runs: two processes would then share one life.
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

// Says in which jobs with error feedback the residual is kept.
enum class KeepResiduals : uint8_t {
  kNever,
  // Only in jobs with local steps: a round takes long there, and writing takes little beside it.
  kLocalSteps,
  // In all jobs. Without local steps each step then waits for the disk.
  kAlways,
};
// Errors: InvalidArgument naming what is allowed.
absl::StatusOr<KeepResiduals> ParseKeepResiduals(absl::string_view what, absl::string_view text);
bool KeepsResidual(KeepResiduals keep, const JobSpec& job);

// Returns the folder of a worker of that name. The result is empty if one of the arguments is
// empty, because the folder could not be found again.
std::string ResidualFolderIn(absl::string_view state_dir, absl::string_view worker_name);

class ResidualFolder {
 public:
  // A process that was killed may still hold the folder: until the system has its memory back.
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  // Takes the folder. If there is none, makes one that is open to this user only. Waits for up to
  // `patience` while another process holds the folder. Errors: AlreadyExists if that process still
  // holds it then; those of the system.
  static absl::StatusOr<std::unique_ptr<ResidualFolder>> Take(const std::string& path,
                                                              const std::string& worker_name,
                                                              Clock* clock,
                                                              absl::Duration patience = kPatience);
  ~ResidualFolder();
  ResidualFolder(const ResidualFolder&) = delete;
  ResidualFolder& operator=(const ResidualFolder&) = delete;

  trainer::ResidualStore* store() { return &store_; }
  trainer::InnerStateStore* inner_states() { return &inner_states_; }
  // Returns the instance of the process before, if that was killed. 0 means that there is none.
  uint64_t former_instance() const { return former_instance_; }
  // Both functions return when the change is on the disk. Errors: those of the system.
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
