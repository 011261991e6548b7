// ClusterWatch looks now and then whether a cluster goes on as it should. Workers that hang hold up
// the others no longer than they may. A server or a job that was told to stop ends in time. If
// nothing goes on, something is said.
#pragma once

#include <cstdint>
#include <map>

#include "absl/time/time.h"
#include "tests/simulation/cluster.h"

namespace lodestar::simulation {

// Since when nothing is broken in the whole run. InfiniteFuture means that something is.
struct Peace {
  absl::Time unbroken_since = absl::InfiniteFuture();  // but for workers that hang
  absl::Time settled_since = absl::InfiniteFuture();   // from the last fault, and hanging
};

class ClusterWatch {
 public:
  // How often it looks.
  static constexpr absl::Duration kInterval = absl::Milliseconds(200);

  explicit ClusterWatch(SimulatedCluster* cluster) : cluster_(*cluster) {}

  void Look(const Peace& peace);
  // An operator stops its job.
  void OnJobStopped();
  // Returns true until that coordinator has ended, even if another one is started.
  bool IsJobStopped() const;
  // Nothing is broken any more: the next round is due within some time of now, and of each round.
  void BeginCalm();
  // `anybody_hangs` means that a worker hangs, which has its own time. `slack` is the time for what
  // else a round may wait for.
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

  // The process of the coordinator whose job an operator has stopped. Another process may take its
  // place.
  const Process* stopped_process_ = nullptr;
  int64_t stopped_life_ = 0;
  absl::Time job_stopped_at_;
  std::map<SimulatedServer*, absl::Duration> stopping_for_;  // without what they were frozen

  std::map<SimulatedWorker*, absl::Time> holds_since_;  // that hang and are waited for
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
