// RoundRunner: what a worker does with one grant: pulls the weights, evaluates its part of the
// evaluation set, trains, hands the contribution over. It outlives a loss of the connection, and so
// does the state of a local optimizer in it. One class per way of training (gradients every step,
// many local steps), chosen in round_runner_factory.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/cluster_messages.h"
#include "common/trace_recorder.h"
#include "kernels/device.h"
#include "worker/client/bulk_transport.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_order.h"
#include "worker/model/model.h"
#include "worker/trainer/contribution_push.h"
#include "worker/trainer/device_timeline.h"
#include "worker/trainer/exchange_state.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar {

// A step that is to be made: of training, or of an evaluation, where step and learning rate say
// nothing.
struct RoundStep {
  Round round;
  int step = 0;  // of the round
  int num_steps = 1;
  double learning_rate = 0.0;
  uint64_t server_incarnation = 0;  // another one: servers have begun anew
};

// What a runner keeps from life to life. Not owned; must outlive the runner.
struct RoundRunnerDeps {
  Model* model = nullptr;
  Device* device = nullptr;
  const Dataset* dataset = nullptr;
  Clock* clock = nullptr;
  // False, to measure what overlapping is worth: all weights are pulled before forward, and nothing
  // is pushed before backward has ended.
  bool overlap = true;
  TraceRecorder* trace = nullptr;  // null: no trace
  // The next round's weights are asked for as soon as a contribution is acknowledged, and arrive
  // while the grant does: one round trip less. Not for those who look at parameters between rounds;
  // without effect where it is not known which weights the next round begins with.
  bool pulls_ahead = false;
  // Local steps are made by the model: TrainStep() leaves changed parameters().
  bool model_has_optimizer = false;
  // Comes before each step of the model.
  std::function<void(const RoundStep&)> on_step = [](const RoundStep&) {};
  // Told the versions of all buckets before anything is computed with them; null: nobody asks, and
  // computing may begin while weights still arrive.
  std::function<void(const std::vector<Version>&)> on_weights = nullptr;
  // True once the worker has been told to stop: hand over what there is.
  std::function<bool()> stop_requested;
  // Told what the worker does now: "compute", or what it waits for servers with, "pull" or "push".
  std::function<void(absl::string_view)> on_activity;
};

// One life of the worker.
struct LifeContext {
  const Registration* registration = nullptr;
  const SampleOrder* sample_order = nullptr;
  ParameterTransport* transport = nullptr;
  // True once the life is over: nobody will take what it still computes. Looked at between steps.
  std::function<bool()> is_over = [] { return false; };

  // Aborted if it is over.
  absl::Status Check() const {
    return is_over() ? absl::AbortedError("this life ended while it computed") : absl::OkStatus();
  }
};

class RoundRunner {
 public:
  virtual ~RoundRunner() = default;

  // Carries out a kTrain or kEvaluate grant; returns when every server has acknowledged the
  // contribution. A round whose contribution was made and not acknowledged, and that is granted
  // again to the same life, is not computed again: what was made is pushed again. So a local
  // optimizer makes each step once, and what a server has counted is what this worker keeps.
  // Errors: Aborted: this life is over, register again; Cancelled; Unimplemented: see UnknownCalls;
  // anything else will not succeed by retrying: data and device of this machine fail with
  // FailedPrecondition, where their own code would promise more.
  absl::StatusOr<RoundReport> Run(const LifeContext& life, const Grant& grant);

  // The weights once all rounds before `min_round` are over, into the model's parameters. Errors:
  // as Run().
  absl::Status PullWeights(const LifeContext& life, Round min_round);
  // Gives the servers the model's present parameters to begin with. Errors: as Run().
  absl::Status HandInInitialWeights(const Registration& registration,
                                    ParameterTransport* transport);
  // Drops what was begun for a round to come. Before the registration or the transport of the last
  // Run() goes.
  void EndLife() { ahead_.reset(); }

 protected:
  explicit RoundRunner(const RoundRunnerDeps& deps)
      : deps_(deps), timeline_(deps.device, deps.trace) {}

  const RoundRunnerDeps deps_;
  DeviceTimeline timeline_;
  std::unique_ptr<ExchangeState> exchange_;  // set before the first round

 private:
  // Trains on the grant's samples while the weights still arrive. Begins `push` and puts all of the
  // contribution into it; sums up losses and samples in *report. When it returns, all weights have
  // been waited for.
  virtual absl::Status Train(const LifeContext& life, const Grant& grant, WeightsPull& pull,
                             std::optional<ContributionPush>& push, RoundReport* report) = 0;

  // Transfers that may succeed later are tried again within. Other errors are as they come.
  absl::StatusOr<RoundReport> RunRound(const LifeContext& life, const Grant& grant);
  absl::StatusOr<RoundReport> RunAgain(const LifeContext& life);
  // That of the weights with all rounds before `min_round`, under way or begun now.
  std::unique_ptr<WeightsPull> TakePull(const LifeContext& life, Round min_round);
  std::unique_ptr<WeightsPull> BeginPull(const LifeContext& life, Round min_round);
  // Adds loss and accuracy over the grant's held-out samples, with the model's present weights, to
  // *report, and the time that computing it took, without waiting for `pull`. Does nothing if the
  // grant has none. Errors: those of data, model and pull; Aborted if the life is over.
  absl::Status EvaluateHeldout(const LifeContext& life, const Grant& grant, WeightsPull& pull,
                               RoundReport* report);
  // Finishes `push`, the last step of a round that `report` tells of. Adds its time to the report.
  absl::Status HandOver(const LifeContext& life, const Grant& grant, ContributionPush& push,
                        RoundReport* report);

  // Not acknowledged yet.
  struct Kept {
    uint64_t server_incarnation = 0;
    WorkerLife life;
    Round round;
    MadeContribution made;
    RoundReport report;
  };
  std::optional<Kept> kept_;
  // Under way before its grant has come.
  struct Ahead {
    Round min_round;
    std::unique_ptr<WeightsPull> pull;
  };
  std::optional<Ahead> ahead_;
};

}  // namespace lodestar
