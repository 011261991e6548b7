// SPDX-License-Identifier: Apache-2.0

// SimulatedReplica is the replica of the servers' journals: a process on a machine of its own, with
// its own disk, and the faults of process and disk.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/testing/simulated_file_system.h"
#include "server/durability/replica/replica_connection.h"
#include "server/durability/replica/replica_store.h"
#include "tests/simulation/chance.h"
#include "tests/simulation/world.h"

namespace lodestar::simulation {

class SimulatedReplica {
 public:
  // An empty `checkpoint_dir` means that the replica has copies of journals only.
  SimulatedReplica(World* world, const std::string& journal_dir, const std::string& checkpoint_dir,
                   uint64_t seed);

  const replica::MirroredFolders& folders() const { return folders_; }
  // Connects a process. `is_of_the_dead` is asked before each call, and returns true if that
  // process has ended.
  std::unique_ptr<replica::ReplicaConnection> Connect(std::function<bool()> is_of_the_dead);
  // Returns true if a server that starts without its disk could continue from this replica.
  bool HasWhole(int shard) const;
  // Returns true if the replica's disk was replaced by an empty one and the shard was not yet
  // copied to it. An operator then knows that no server can continue from the replica.
  bool IsKnownToBeEmpty(int shard) const;

  // These cause faults. The replica recovers within `time`.
  void Crash(bool with_machine, absl::Duration time);
  void LoseDisk(int num_shards);
  void Cut(absl::Duration time);
  void FillDisk(absl::Duration time);
  // Lets `num_calls` calls pass and fails the next one. The failed call may change files, and its
  // caller does not learn why it failed.
  void CutOnce(int64_t num_calls) { calls_until_cut_ = num_calls; }
  void CrashOnDisk(int64_t num_operations) { operations_until_crash_ = num_operations; }
  void Mend();

 private:
  void Start();
  absl::Status OnCall();
  absl::Status OnFileOperation();

  World* const world_;
  Chance chance_;
  const replica::MirroredFolders folders_;
  std::unique_ptr<SimulatedFileSystem> disk_;
  std::shared_ptr<replica::ReplicaStore> store_;  // null while the process is down
  int64_t num_starts_ = 0;
  absl::Time cut_until_ = absl::InfinitePast();
  int64_t calls_until_cut_ = -1;
  int64_t operations_until_crash_ = -1;
  std::set<int> lost_;  // shards that the replaced disk had
};

}  // namespace lodestar::simulation
