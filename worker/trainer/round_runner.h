// SPDX-License-Identifier: Apache-2.0

// RoundRunner carries out the grants of a worker. For each grant, it pulls the weights, evaluates
// its part of the evaluation set, trains, and pushes a contribution. A lost connection does not
// destroy the runner and the state of its inner optimizer. There is one class per way of training
// (gradients every step, many local steps, local steps during the exchange). round_runner_factory.h
// chooses the class.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/clock.h"
#include "kernels/device.h"
#include "worker/client/bulk_transport.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_order.h"
#include "worker/model/model.h"
#include "worker/trainer/contribution_push.h"
#include "worker/trainer/device_timeline.h"
#include "worker/trainer/exchange_state.h"
#include "worker/trainer/grant_samples.h"
#include "worker/trainer/inner_state_store.h"
#include "worker/trainer/life_context.h"
#include "worker/trainer/residual_keeper.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar::trainer {

// Describes a step of training or evaluation that is about to begin. In an evaluation `step` and
// `learning_rate` are not set.
struct RoundStep {
  Round round;
  int step = 0;  // Number of the step in its round, from 0.
  int num_steps = 1;
  SampleSpan samples = {};  // The samples of a training step.
  // Position of the round's first sample, as in Grant, or of this worker's if that is not known.
  int64_t round_first_sample = 0;
  double learning_rate = 0.0;
  uint64_t server_incarnation = 0;  // Incarnation of the servers. It changes when they restart.
};

// The parts that a runner uses in all lives. The runner does not own them, and they must outlive
// it.
struct RoundRunnerDeps {
  model::Model* model = nullptr;
  kernels::Device* device = nullptr;
  const data::Dataset* dataset = nullptr;
  Clock* clock = nullptr;
  // False means that forward starts after all weights were pulled, and that pushing starts after
  // backward. Used to measure how much overlap helps.
  bool overlap = true;
  process::TraceRecorder* trace = nullptr;  // Null means no trace.
  // If true, the next round's weights are pulled before the round is granted. Must be false if the
  // caller reads the parameters between rounds. MakeRoundRunner() ignores it if a round may begin
  // with other weights than those at the end of the last round.
  bool pulls_ahead = false;
  // True if the model has its own optimizer: TrainStep() makes local steps and changes
  // parameters().
  bool model_has_optimizer = false;
  // Called with the report of a round once the whole contribution was passed to the transport, and
  // before it is acknowledged. May be null. Not called if contributions are deferred, or after a
  // request to stop.
  std::function<void(const messages::RoundReport&)> on_contributed = nullptr;
  // Stores the residual of error feedback on disk. If set, nothing is pushed before the whole
  // contribution is stored. Null means that the residual is lost when the process ends.
  ResidualStore* residuals = nullptr;
  // Stores the state of an inner optimizer for the next process. Null means that the state is lost
  // when the process ends.
  InnerStateStore* inner_states = nullptr;
  // Called before each step of the model.
  std::function<void(const RoundStep&)> on_step = [](const RoundStep&) {};
  // Called after local steps, before other code reads or changes the parameters: at the end of a
  // round's steps, and before the servers' weights are merged between two steps. An error ends the
  // round.
  std::function<absl::Status()> on_steps_made = [] { return absl::OkStatus(); };
  // Called with the versions of all buckets before their weights are used. If set, computing begins
  // only when all weights have arrived. Null means that it may begin earlier.
  std::function<void(const std::vector<Version>&)> on_weights = nullptr;
  // Returns true once the worker was told to stop. Then the runner pushes what it has computed.
  std::function<bool()> stop_requested;
  // Returns the time that is left after a request to stop. Local steps that fit into this time are
  // still made. Zero means that the present step is the last.
  std::function<absl::Duration()> time_left = [] { return absl::ZeroDuration(); };
  // Called with the present activity: "compute", or "pull" or "push" while the runner waits for
  // servers.
  std::function<void(absl::string_view)> on_activity;
};

// The state of the servers' optimizer that a job begins with.
struct InitialState {
  // In the order of the optimizer. Each has all elements of the layout.
  std::vector<std::vector<float>> vectors;
  // Number of updates that the state has had.
  Version version;
};

class RoundRunner {
 public:
  virtual ~RoundRunner() = default;

  // Carries out a kTrain or kEvaluate grant. Returns the report when every server has acknowledged
  // the contribution. If the push fails and the same life is granted the same round again, pushes
  // the same contribution without computing it again. So the inner optimizer makes each step only
  // once.
  //
  // Errors:
  // - Aborted: this life is over, and the worker must register again.
  // - Cancelled.
  // - Unimplemented: see UnknownCalls.
  // - Others are final. Errors of this machine's data and device are made final by AsFinal().
  absl::StatusOr<messages::RoundReport> Run(const LifeContext& life, const messages::Grant& grant);
  // Removes the residual on disk, because the job is done.
  void ForgetResidual();

  // Pulls weights that include all rounds before `min_round` into the model's parameters. Blocks
  // until these rounds are over. Errors: those of Run().
  virtual absl::Status PullWeights(const LifeContext& life, Round min_round) = 0;
  // Stores the optimizer state for the next process of the same name, see
  // RoundRunnerDeps::inner_states. Called when the worker has handed in its work and leaves a job
  // that may continue. Errors: those of files and of the device.
  virtual absl::Status KeepOptimizerState() { return absl::OkStatus(); }
  // Pushes `state` and the model's present parameters as the job's initial weights. If `state` has
  // no vectors, the servers' optimizer begins with zeros. Errors: those of Run().
  absl::Status HandInInitialWeights(const messages::Registration& registration,
                                    const InitialState& state,
                                    client::ParameterTransport* transport);
  // Must be called before the registration and the transport of the last Run() are destroyed. Ends
  // the pull of the next round's weights, which uses both.
  virtual void EndLife() = 0;
  // Returns the number of pulls whose weights were used, over all lives. Includes pulls of only a
  // part of the weights.
  int64_t num_pulls() const { return num_pulls_; }

 protected:
  explicit RoundRunner(const RoundRunnerDeps& deps)
      : deps_(deps), timeline_(deps.device, deps.trace) {}

  // Returns at what time buckets of a contribution may be sent. If residuals are stored on disk,
  // the contribution must be stored first.
  ContributionPush::Leaves leaves() const {
    return deps_.residuals == nullptr ? ContributionPush::Leaves::kAtOnce
                                      : ContributionPush::Leaves::kWithFinish;
  }
  // Must be called before a contribution is begun. Returns the result of ResidualKeeper::Settle().
  // If earlier processes of this name have completed rounds and their residual is lost, the next
  // report says so.
  absl::StatusOr<std::optional<messages::RoundReport>> SettleResidual(const LifeContext& life,
                                                                      Round round);
  // Evaluates the grant's held-out samples with the model's present weights. Adds loss, accuracy
  // and computing time to *report. Does nothing if the grant has no held-out samples. `pull` brings
  // the weights. Null means that they have arrived. The computing time does not include waits for
  // `pull`.
  //
  // If the worker is told to stop, ends before the next pass of the model. In a training round, the
  // report then has no held-out samples. If the grant only evaluates, returns Cancelled. Other
  // errors: those of data, model and pull; Aborted if the life is over.
  absl::Status EvaluateHeldout(const LifeContext& life, const messages::Grant& grant,
                               WeightsPull* pull, messages::RoundReport* report);
  // Keeps the contribution of `push` until the servers have acknowledged it. If the round of
  // `report` is granted again, this contribution is pushed again. `push` must have the whole
  // contribution. If residuals are stored on disk, blocks until contribution and residual are
  // stored. Errors: those of the device.
  absl::Status Keep(const LifeContext& life, ContributionPush& push,
                    const messages::RoundReport& report);
  // Must be called when the weights of a pull are used. Must be called by one thread at a time.
  void CountPull() { ++num_pulls_; }
  // Calls on_contributed, unless the worker was told to stop.
  void TellContributed(messages::RoundReport report);
  // Drops the kept contribution, because the servers have acknowledged it.
  void ForgetKept() { kept_.reset(); }

  const RoundRunnerDeps deps_;
  DeviceTimeline timeline_;
  std::unique_ptr<ExchangeState> exchange_;  // Set before the first round.

 private:
  // Carries out a round. Retries transfers that may succeed later. Returns other errors unchanged.
  virtual absl::StatusOr<messages::RoundReport> RunRound(const LifeContext& life,
                                                         const messages::Grant& grant) = 0;
  // Pushes the kept contribution of a round again. Errors: those of RunRound().
  virtual absl::Status PushKept(const LifeContext& life, const MadeContribution& made) = 0;
  absl::StatusOr<messages::RoundReport> RunAgain(const LifeContext& life);
  // Ends an evaluation after `num_done` held-out samples, because the worker was told to stop. See
  // EvaluateHeldout().
  absl::Status CutEvaluation(const messages::Grant& grant, int64_t num_done,
                             messages::RoundReport* report);

  // A contribution that is not yet acknowledged.
  struct Kept {
    uint64_t server_incarnation = 0;
    messages::WorkerLife life;
    Round round;
    MadeContribution made;
    messages::RoundReport report;
  };
  std::optional<Kept> kept_;
  std::optional<ResidualKeeper> keeper_;
  std::atomic<int64_t> num_pulls_ = 0;
  // True once SettleResidual() has succeeded in this process.
  bool has_settled_ = false;
  // Number of rounds whose residual is lost. The next report includes this number.
  int64_t lost_residual_rounds_ = 0;
};

}  // namespace lodestar::trainer
