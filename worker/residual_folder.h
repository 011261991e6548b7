// Where a worker keeps the residual of error feedback, and, once it was told to stop, the state of
// its inner optimizer, for the next process of its name: a folder in --state_dir, held by one
// process at a time. Beside the residual it has the instance by which the servers know the process:
// one that begins again within the lease shows it, and goes on with the life of the one before,
// whose round at hand is not lost. It is written as long as a process is in such a job and has not
// ended by itself.
//
// Whoever copies the folder to another machine and starts a worker of the same name there while the
// first one runs has two processes in one life: do not.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/job_spec.h"
#include "worker/trainer/inner_state_store.h"
#include "worker/trainer/residual_store.h"

namespace lodestar {

// In which jobs with error feedback.
enum class KeepResiduals : uint8_t {
  kNever,
  kLocalSteps,  // where a round is rare, and what writing takes is little beside it
  kAlways,      // where each step waits for the disk, too
};
// Errors: InvalidArgument naming what is allowed.
absl::StatusOr<KeepResiduals> ParseKeepResiduals(absl::string_view what, absl::string_view text);
bool KeepsResidual(KeepResiduals keep, const JobSpec& job);

// For a worker of that name; empty if one of both is: it could not be found again.
std::string ResidualFolderIn(absl::string_view state_dir, absl::string_view worker_name);

class ResidualFolder {
 public:
  // Of a process that was killed: it holds the folder until the system has its memory back.
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  // Makes it where there is none, open to this user only. Waits for up to `patience` for another
  // process that holds it. Errors: AlreadyExists if it goes on holding it; those of the system.
  static absl::StatusOr<std::unique_ptr<ResidualFolder>> Take(const std::string& path,
                                                              const std::string& worker_name,
                                                              Clock* clock,
                                                              absl::Duration patience = kPatience);
  ~ResidualFolder();
  ResidualFolder(const ResidualFolder&) = delete;
  ResidualFolder& operator=(const ResidualFolder&) = delete;

  ResidualStore* store() { return &store_; }
  InnerStateStore* inner_states() { return &inner_states_; }
  // Of a process that was killed; 0: there is none.
  uint64_t former_instance() const { return former_instance_; }
  // Both on the disk when they return. Errors: those of the system.
  absl::Status WriteInstance(uint64_t instance_id);
  absl::Status RemoveInstance();

 private:
  ResidualFolder(const std::string& path, const std::string& worker_name, int lock);

  const std::string instance_path_;
  const int lock_;
  uint64_t former_instance_ = 0;
  ResidualStore store_;
  InnerStateStore inner_states_;
};

}  // namespace lodestar
