// SPDX-License-Identifier: Apache-2.0

// ClusterWatch checks now and then that a cluster makes progress as it should. Workers that hang
// hold up the others no longer than allowed. A server or job that was told to stop ends in time. If
// nothing moves, a reason is given.
#pragma once

#include <cstdint>
#include <map>

#include "absl/time/time.h"
#include "tests/simulation/cluster.h"

namespace lodestar::simulation {

// Times since which nothing is broken in the whole run. InfiniteFuture means that something is
// broken.
struct Peace {
  absl::Time unbroken_since = absl::InfiniteFuture();  // apart from workers that hang
  // Since the last fault and the last hanging worker.
  absl::Time settled_since = absl::InfiniteFuture();
};

class ClusterWatch {
 public:
  // Interval between two checks.
  static constexpr absl::Duration kInterval = absl::Milliseconds(200);

  explicit ClusterWatch(SimulatedCluster* cluster) : cluster_(*cluster) {}

  void Look(const Peace& peace);
  // An operator stops the job of the cluster.
  void OnJobStopped();
  // Returns true from OnJobStopped() until that coordinator's process has ended, even if another
  // one is started later.
  bool IsJobStopped() const;
  // Called when nothing is broken any more. The next round is due within some time from now, and
  // each later round within some time from the round before.
  void BeginCalm();
  // `anybody_hangs` means that a worker hangs, which has a time limit of its own. `slack` is the
  // time for other things that a round may wait for.
  void CheckProgress(bool anybody_hangs, absl::Duration slack);

 private:
  void CheckHolds(const Peace& peace);
  void CheckStopping(const Peace& peace);
  void CheckReasons();
  absl::Duration LongestStop() const;
  bool AnyAwaitsDisk() const;
  absl::Time now() const { return cluster_.world->Now(); }
  Audit& audit() { return cluster_.audit; }

  SimulatedCluster& cluster_;

  // Process of the coordinator whose job an operator has stopped. Another process may take its
  // place.
  const Process* stopped_process_ = nullptr;
  int64_t stopped_life_ = 0;
  absl::Time job_stopped_at_;
  // time since the stop, without times when frozen
  std::map<SimulatedServer*, absl::Duration> stopping_for_;

  // since when each hanging worker is waited for
  std::map<SimulatedWorker*, absl::Time> holds_since_;
  int num_hanging_ = 0;
  int64_t rounds_then_ = 0;

  int64_t rounds_told_ = 0;
  int64_t work_told_ = 0;
  absl::Time told_at_;
  absl::Time committed_at_;
  absl::Duration longest_round_;

  int64_t rounds_seen_ = 0;
  absl::Time progress_at_;
};

}  // namespace lodestar::simulation
