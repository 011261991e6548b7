// How the job goes: losses, speeds and what was lost, for the status. Pure data.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/rate_meter.h"
#include "server/coordinator/round_observer.h"

namespace lodestar {

class JobProgress {
 public:
  void OnRound(const RoundSummary& summary);
  // Work that nobody finished.
  void OnRoundLost() { ++rounds_committed_short_; }

  // Fills losses, speeds, the estimate and the counts. `remaining_rounds`: still to be completed.
  void Describe(int64_t remaining_rounds, int64_t tokens_per_sample, absl::Time now,
                ClusterSnapshot& snapshot) const;

 private:
  std::optional<double> train_loss_;
  std::optional<double> heldout_loss_;
  std::optional<double> heldout_accuracy_;
  RateMeter samples_;
  RateMeter rounds_;
  uint64_t rounds_committed_short_ = 0;
};

}  // namespace lodestar
