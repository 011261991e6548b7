// SPDX-License-Identifier: Apache-2.0

// PulledRounds carries out rounds that begin with the servers' weights and end with a contribution
// to the same round (sync, async, local_sgd without overlap): pull, evaluate, train, push.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/messages/cluster_messages.h"
#include "worker/trainer/round_runner.h"

namespace lodestar::trainer {

class PulledRounds : public RoundRunner {
 public:
  absl::Status PullWeights(const LifeContext& life, Round min_round) override;
  void EndLife() override { ahead_.reset(); }

 protected:
  // The time at which the pull of the next round's weights begins, if RoundRunnerDeps::pulls_ahead
  // is true:
  // - kBesideThePush: while the contribution is pushed.
  // - kOnceAcknowledged: when all servers have acknowledged the contribution. Needed if weights are
  //   pulled into the vector of the contribution.
  enum class PullsAhead : uint8_t { kBesideThePush, kOnceAcknowledged };

  PulledRounds(const RoundRunnerDeps& deps, PullsAhead pulls_ahead)
      : RoundRunner(deps), pulls_ahead_(pulls_ahead) {}

 private:
  // Trains on the grant's samples while the weights still arrive. Makes `push`, adds the whole
  // contribution to it, and adds losses and samples to *report. Must not return before all weights
  // have arrived.
  virtual absl::Status Train(const LifeContext& life, const messages::Grant& grant,
                             WeightsPull& pull, std::optional<ContributionPush>& push,
                             messages::RoundReport* report) = 0;

  // Called when all servers have acknowledged a contribution. The argument is the time since the
  // contribution was made.
  virtual void OnHandedOver(absl::Duration) {}

  absl::StatusOr<messages::RoundReport> RunRound(const LifeContext& life,
                                                 const messages::Grant& grant) override;
  absl::Status PushKept(const LifeContext& life, const MadeContribution& made) override {
    return PushAgain(*life.registration, made, life.transport, deps_.clock);
  }
  // Returns the pull of the weights that include all rounds before `min_round`. This is the pull
  // that runs already, or a new one.
  std::unique_ptr<WeightsPull> TakePull(const LifeContext& life, Round min_round);
  std::unique_ptr<WeightsPull> BeginPull(const LifeContext& life, Round min_round,
                                         std::vector<uint32_t> order);
  // Returns all buckets in the order in which the last round waited for them, because the next step
  // probably needs them in the same order.
  std::vector<uint32_t> NeededOrder(const messages::Registration& registration) const;
  // Returns the best order of a pull that begins while `push` still sends.
  std::vector<uint32_t> OrderBeside(const LifeContext& life, const ContributionPush& push) const;
  // Blocks until all bytes of `push` are made. Returns how long the device had nothing to compute
  // during this wait. Errors: those of the device.
  absl::StatusOr<absl::Duration> AwaitMade(ContributionPush& push);
  // Completes the push of the round that `report` describes. Blocks until all servers have
  // acknowledged it. May begin the pull of the next round's weights.
  absl::Status HandOver(const LifeContext& life, ContributionPush& push,
                        const messages::RoundReport& report);
  // Begins the pull of the next round's weights, if `now` equals pulls_ahead_. Does nothing if
  // RoundRunnerDeps::pulls_ahead is false, or if the worker was told to stop.
  void PullAhead(const LifeContext& life, Round next_round, PullsAhead now,
                 const ContributionPush& push);

  // A pull that began before the grant of its round.
  struct Ahead {
    Round min_round;
    std::unique_ptr<WeightsPull> pull;
  };
  const PullsAhead pulls_ahead_;
  std::optional<Ahead> ahead_;
  // The buckets of the last round, in the order in which the round waited for them.
  std::vector<uint32_t> last_waited_;
  // Times of the last push. They are known only after the report of its round was sent, so they are
  // added to the next report.
  absl::Duration untold_communication_;
  absl::Duration untold_wait_;
};

}  // namespace lodestar::trainer
