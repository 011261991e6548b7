// SPDX-License-Identifier: Apache-2.0

// DiskFaults makes a disk of a run fail: nothing fits, operations fail now and then, a folder
// cannot be written, nothing can be read, or the machine loses power in the middle of a write.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/testing/simulated_file_system.h"
#include "tests/simulation/chance.h"
#include "tests/simulation/world.h"

namespace lodestar::simulation {

class DiskFaults {
 public:
  // `is_of_the_dead` returns true if the process that uses the disk now has ended. `checkpoint_dir`
  // is the folder that FailFolder() makes unwritable.
  DiskFaults(World* world, Chance* chance, SimulatedFileSystem* disk, std::string checkpoint_dir,
             std::function<bool()> is_of_the_dead);

  void Fill(absl::Duration time);
  void FailNowAndThen(absl::Duration time);
  void FailFolder(absl::Duration time);
  void FailReads(absl::Duration time);
  // Makes one read fail, after `num_reads` reads.
  void FailOneRead(int64_t num_reads) { reads_until_failure_ = num_reads; }
  // Makes the machine lose power after `num_writes` writes, if it still runs then. `is_on` returns
  // true if the machine runs, and `crash` ends it.
  void LosePower(int64_t num_writes, std::function<bool()> is_on, std::function<void()> crash);
  // Makes the disk work whatever else is wrong. This is for test code that looks at the disk, or
  // damages files, from outside.
  void SetOpen(bool is_open) { is_open_ = is_open; }
  void Mend();

  // Returns true if the error is that nothing can be read, or that the checkpoint of an accepted
  // loss cannot be marked. Servers that meet such an error at their start end the job, and say so.
  static bool MayEndJob(const absl::Status& status);

 private:
  absl::Status OnOperation(FileOperation operation, const std::string& path);

  World* const world_;
  Chance* const chance_;
  SimulatedFileSystem* const disk_;
  const std::string checkpoint_dir_;
  const std::function<bool()> is_of_the_dead_;
  bool is_open_ = false;
  absl::Time fails_until_ = absl::InfinitePast();
  absl::Time folder_fails_until_ = absl::InfinitePast();
  absl::Time reads_fail_until_ = absl::InfinitePast();
  int64_t reads_until_failure_ = -1;
  int64_t writes_until_crash_ = -1;
  std::function<bool()> is_on_;
  std::function<void()> crash_;
};

}  // namespace lodestar::simulation
