// DiskFaults: what a disk of a run does wrong: nothing fits, it fails now and then, a folder cannot
// be written, nothing can be read, or the machine loses power in the middle of a write.
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
  // `is_of_the_dead` returns whether the process that uses the disk now has ended. `checkpoint_dir`
  // is the folder that cannot be written after FailFolder().
  DiskFaults(World* world, Chance* chance, SimulatedFileSystem* disk, std::string checkpoint_dir,
             std::function<bool()> is_of_the_dead);

  void Fill(absl::Duration time);
  void FailNowAndThen(absl::Duration time);
  void FailFolder(absl::Duration time);
  void FailReads(absl::Duration time);
  // One read fails, after so many reads.
  void FailOneRead(int64_t num_reads) { reads_until_failure_ = num_reads; }
  // The machine loses power after so many writes, as long as it runs. `is_on` returns whether it
  // runs, and `crash` ends it.
  void LosePower(int64_t num_writes, std::function<bool()> is_on, std::function<void()> crash);
  // An open disk works, whatever else is wrong: for code that looks at it, or damages it, from
  // outside.
  void SetOpen(bool is_open) { is_open_ = is_open; }
  void Mend();

  // Whether the error is that nothing can be read, or that the checkpoint of an accepted loss
  // cannot be marked. Servers that cannot do so when they begin end the job, and say so.
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
