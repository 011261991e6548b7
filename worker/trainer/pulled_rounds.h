// Rounds that begin with the servers' weights and end with the contribution to the same round
// (sync, async, local_sgd without overlap): pull, evaluate, train, push.
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
  // Says when the next round's weights may be asked for, if they are
  // (RoundRunnerDeps::pulls_ahead). If the contribution may be in the place that they go to, it
  // must be acknowledged first.
  enum class PullsAhead : uint8_t { kBesideThePush, kOnceAcknowledged };

  PulledRounds(const RoundRunnerDeps& deps, PullsAhead pulls_ahead)
      : RoundRunner(deps), pulls_ahead_(pulls_ahead) {}

 private:
  // Trains on the grant's samples while the weights still arrive. Begins `push` and puts all of the
  // contribution into it; sums up losses and samples in *report. When it returns, all weights have
  // been waited for.
  virtual absl::Status Train(const LifeContext& life, const Grant& grant, WeightsPull& pull,
                             std::optional<ContributionPush>& push, RoundReport* report) = 0;

  // Is called when all servers have acknowledged a contribution so long after it was made.
  virtual void OnHandedOver(absl::Duration) {}

  absl::StatusOr<RoundReport> RunRound(const LifeContext& life, const Grant& grant) override;
  absl::Status PushKept(const LifeContext& life, const MadeContribution& made) override {
    return PushAgain(*life.registration, made, life.transport, deps_.clock);
  }
  // Returns the pull of the weights with all rounds before `min_round`. It is under way, or is
  // begun now.
  std::unique_ptr<WeightsPull> TakePull(const LifeContext& life, Round min_round);
  std::unique_ptr<WeightsPull> BeginPull(const LifeContext& life, Round min_round,
                                         std::vector<uint32_t> order);
  // Returns all buckets in the order in which a step has waited for them, since the next step may
  // need them in that order.
  std::vector<uint32_t> NeededOrder(const Registration& registration) const;
  // Returns the order in which the weights that `push` contributes to had best come.
  std::vector<uint32_t> OrderBeside(const LifeContext& life, const ContributionPush& push) const;
  // Blocks until all bytes of `push` are made. Returns how long that took from when the device had
  // nothing to compute any more. Errors: those of the device.
  absl::StatusOr<absl::Duration> AwaitMade(ContributionPush& push);
  // Finishes `push`, the last step of a round that `report` tells of.
  absl::Status HandOver(const LifeContext& life, ContributionPush& push, const RoundReport& report);
  // Begins the pull of the next round's weights, if they may be asked for `now`.
  void PullAhead(const LifeContext& life, Round next_round, PullsAhead now,
                 const ContributionPush& push);

  // A pull that is under way before its grant has come.
  struct Ahead {
    Round min_round;
    std::unique_ptr<WeightsPull> pull;
  };
  const PullsAhead pulls_ahead_;
  std::optional<Ahead> ahead_;
  // The buckets of the last round, in the order in which they were waited for.
  std::vector<uint32_t> last_waited_;
  // The times of acknowledgements that came after their report had been told. The next report has
  // them.
  absl::Duration untold_communication_;
  absl::Duration untold_wait_;
};

}  // namespace lodestar::trainer
