// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/disk_faults.h"

#include <limits>
#include <utility>

#include "absl/strings/match.h"

namespace lodestar::simulation {
namespace {

constexpr char kUnreadable[] = "the disk cannot be read";

}  // namespace

DiskFaults::DiskFaults(World* world, Chance* chance, SimulatedFileSystem* disk,
                       std::string checkpoint_dir, std::function<bool()> is_of_the_dead)
    : world_(world),
      chance_(chance),
      disk_(disk),
      checkpoint_dir_(std::move(checkpoint_dir)),
      is_of_the_dead_(std::move(is_of_the_dead)) {
  disk_->SetFaultHook([this](FileOperation operation, const std::string& path) {
    return OnOperation(operation, path);
  });
}

bool DiskFaults::MayEndJob(const absl::Status& status) {
  return absl::StrContains(status.message(), kUnreadable) ||
         absl::StrContains(status.message(), "cannot be marked as the checkpoint to go back to");
}

void DiskFaults::Fill(absl::Duration time) {
  disk_->SetCapacity(0);
  world_->After(time, [this] { disk_->SetCapacity(std::numeric_limits<int64_t>::max()); });
}

void DiskFaults::FailNowAndThen(absl::Duration time) { fails_until_ = world_->Now() + time; }

void DiskFaults::FailFolder(absl::Duration time) { folder_fails_until_ = world_->Now() + time; }

void DiskFaults::FailReads(absl::Duration time) { reads_fail_until_ = world_->Now() + time; }

void DiskFaults::LosePower(int64_t num_writes, std::function<bool()> is_on,
                           std::function<void()> crash) {
  writes_until_crash_ = num_writes;
  is_on_ = std::move(is_on);
  crash_ = std::move(crash);
}

void DiskFaults::Mend() {
  disk_->SetCapacity(std::numeric_limits<int64_t>::max());
  fails_until_ = absl::InfinitePast();
  folder_fails_until_ = absl::InfinitePast();
  reads_fail_until_ = absl::InfinitePast();
  reads_until_failure_ = -1;
  writes_until_crash_ = -1;
}

absl::Status DiskFaults::OnOperation(FileOperation operation, const std::string& path) {
  if (is_open_) return absl::OkStatus();
  if (is_of_the_dead_()) return absl::UnavailableError("the process has ended");
  const bool reads = operation == FileOperation::kRead;
  const bool writes = !reads && operation != FileOperation::kRemove;
  const bool fails_once = reads && reads_until_failure_ >= 0 && reads_until_failure_-- == 0;
  if (reads && (fails_once || world_->Now() < reads_fail_until_)) {
    return absl::InternalError(kUnreadable);
  }
  if (writes && writes_until_crash_ >= 0 && is_on_() && writes_until_crash_-- == 0) {
    world_->After(absl::ZeroDuration(), crash_);
    return absl::UnavailableError("the machine loses power");
  }
  if (writes && world_->Now() < folder_fails_until_ && absl::StartsWith(path, checkpoint_dir_)) {
    return absl::PermissionDeniedError("the checkpoint folder cannot be written");
  }
  if (writes && world_->Now() < fails_until_ && chance_->OneIn(10)) {
    return absl::DataLossError("the disk answers with an error");
  }
  return absl::OkStatus();
}

}  // namespace lodestar::simulation
