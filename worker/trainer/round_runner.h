// RoundRunner: what a worker does with one grant: gets the weights, evaluates its part of the
// evaluation set, trains, hands a contribution over. It outlives a loss of the connection, and so
// does the state of a local optimizer in it. One class per way of training (gradients every step,
// many local steps, local steps during the exchange), chosen in round_runner_factory.h.
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

// A step that is to be made, of training or of an evaluation. In an evaluation step and learning
// rate say nothing.
struct RoundStep {
  Round round;
  int step = 0;  // The number of the step in the round.
  int num_steps = 1;
  SampleSpan samples = {};  // The samples of a training step.
  double learning_rate = 0.0;
  uint64_t server_incarnation = 0;  // If it changes, the servers have begun anew.
};

// What a runner keeps from life to life. The pointers are not owned, and what they point to must
// outlive the runner.
struct RoundRunnerDeps {
  model::Model* model = nullptr;
  kernels::Device* device = nullptr;
  const data::Dataset* dataset = nullptr;
  Clock* clock = nullptr;
  // False serves to measure what overlapping is worth. All weights are then pulled before forward,
  // and nothing is pushed before backward has ended.
  bool overlap = true;
  TraceRecorder* trace = nullptr;  // Null means that nothing is traced.
  // If it is set, the next round's weights are asked for before its grant has come, and arrive
  // while the grant does. It must not be set for callers that look at parameters between rounds. It
  // has no effect if it is not known which weights the next round begins with.
  bool pulls_ahead = false;
  // If it is set, the model makes local steps: TrainStep() leaves changed parameters().
  bool model_has_optimizer = false;
  // It is called with the report of a round once all that is contributed to the round is on its
  // way, before that is acknowledged. Null means that it is not called. It is not called if
  // contributions are deferred: their way is hidden.
  std::function<void(const RoundReport&)> on_contributed = nullptr;
  // It keeps what error feedback has, if the job has error feedback. Nothing is then pushed before
  // all of a contribution is made, and written. Null means that the residual ends with the process.
  ResidualStore* residuals = nullptr;
  // It keeps the state of an inner optimizer from one process to the next. Null means that the
  // state ends with the process.
  InnerStateStore* inner_states = nullptr;
  // It is called before each step of the model.
  std::function<void(const RoundStep&)> on_step = [](const RoundStep&) {};
  // It is called after local steps, before any other code looks at the parameters that they have
  // left. That is at the end of a round's steps, and before weights of the servers are merged into
  // parameters between two steps. Its errors end the round.
  std::function<absl::Status()> on_steps_made = [] { return absl::OkStatus(); };
  // It is called with the versions of all buckets before anything is computed with them. Null means
  // that computing may begin while weights still arrive.
  std::function<void(const std::vector<Version>&)> on_weights = nullptr;
  // Returns true once the worker has been told to stop. The runner then hands over what there is.
  std::function<bool()> stop_requested;
  // Returns the time until the worker is to be gone, once it has been told to stop. Local steps
  // that fit into that time are still made. Zero means that none is made after the one at hand.
  std::function<absl::Duration()> time_left = [] { return absl::ZeroDuration(); };
  // It is called with what the worker does now: "compute", or what it waits for servers with,
  // "pull" or "push".
  std::function<void(absl::string_view)> on_activity;
};

class RoundRunner {
 public:
  virtual ~RoundRunner() = default;

  // Carries out a kTrain or kEvaluate grant, and returns when every server has acknowledged the
  // contribution. If a round is granted again to the same life, and its contribution was made and
  // not acknowledged, it is not computed again: what was made is pushed again. A local optimizer
  // therefore makes each step once, and what a server has counted is what this worker keeps.
  //
  // Errors: Aborted if this life is over, and the worker must register again; Cancelled;
  // Unimplemented, see UnknownCalls. Any other error will not go away with another try. Errors of
  // data and device of this machine are FailedPrecondition, even if their own code would promise
  // more.
  absl::StatusOr<RoundReport> Run(const LifeContext& life, const Grant& grant);
  // Removes what was kept for another process, because the job is done.
  void ForgetResidual();

  // Pulls the weights once all rounds before `min_round` are over, into the model's parameters.
  // Errors: as Run().
  virtual absl::Status PullWeights(const LifeContext& life, Round min_round) = 0;
  // Keeps what the next process of its name goes on with, see RoundRunnerDeps::inner_states. It is
  // called when the worker was told to stop, and its work is handed in. Errors: those of files and
  // of the device.
  virtual absl::Status KeepOptimizerState() { return absl::OkStatus(); }
  // Gives the servers the model's present parameters to begin with. Errors: as Run().
  absl::Status HandInInitialWeights(const Registration& registration,
                                    client::ParameterTransport* transport);
  // Must be called before the registration and the transport of the last Run() go. What was begun
  // for a round to come then does not use them any more.
  virtual void EndLife() = 0;
  // The number of pulls of weights, or of parts of them, that were used, over all lives.
  int64_t num_pulls() const { return num_pulls_; }

 protected:
  explicit RoundRunner(const RoundRunnerDeps& deps)
      : deps_(deps), timeline_(deps.device, deps.trace) {}

  // Returns how the buckets of a contribution leave.
  ContributionPush::Leaves leaves() const {
    return deps_.residuals == nullptr ? ContributionPush::Leaves::kAtOnce
                                      : ContributionPush::Leaves::kWithFinish;
  }
  // Must be called before a contribution is begun. Returns what ResidualKeeper::Settle() returns.
  // Tells once if this process takes the worker's place in the job without what error feedback had.
  absl::StatusOr<std::optional<RoundReport>> SettleResidual(const LifeContext& life, Round round);
  // Adds loss and accuracy over the grant's held-out samples, with the model's present weights, to
  // *report. Adds also the time that computing took, without waiting for `pull`, which brings the
  // weights. A null `pull` means that the weights are there. Does nothing if the grant has no
  // held-out samples.
  //
  // Ends between passes of the model once the worker is told to stop: the report of a round that
  // trains then has no held-out samples. Errors: those of data, model and pull; Aborted if the life
  // is over; Cancelled if the worker is told to stop and the grant is for an evaluation alone.
  absl::Status EvaluateHeldout(const LifeContext& life, const Grant& grant, WeightsPull* pull,
                               RoundReport* report);
  // Keeps `push`, which has all of a contribution to the round that `report` tells of. It is
  // possible that no server has counted the contribution. It is pushed again if its round is
  // granted again. Errors: those of the device.
  absl::Status Keep(const LifeContext& life, ContributionPush& push, const RoundReport& report);
  // Counts a pull whose weights are used, or will be. Must be called by one thread at a time.
  void CountPull() { ++num_pulls_; }
  // Tells that all of a contribution is on its way.
  void TellContributed(RoundReport report);
  // Forgets what was kept, because the servers have acknowledged it.
  void ForgetKept() { kept_.reset(); }

  const RoundRunnerDeps deps_;
  DeviceTimeline timeline_;
  std::unique_ptr<ExchangeState> exchange_;  // It is set before the first round.

 private:
  // Carries out a round. It tries transfers again that may succeed later. Other errors are returned
  // as they come.
  virtual absl::StatusOr<RoundReport> RunRound(const LifeContext& life, const Grant& grant) = 0;
  // Pushes once more what was made for the round. Errors: as RunRound().
  virtual absl::Status PushKept(const LifeContext& life, const MadeContribution& made) = 0;
  absl::StatusOr<RoundReport> RunAgain(const LifeContext& life);
  // The worker was told to stop after so many held-out samples: see EvaluateHeldout().
  absl::Status CutEvaluation(const Grant& grant, int64_t num_done, RoundReport* report);

  // Not acknowledged yet.
  struct Kept {
    uint64_t server_incarnation = 0;
    WorkerLife life;
    Round round;
    MadeContribution made;
    RoundReport report;
  };
  std::optional<Kept> kept_;
  std::optional<ResidualKeeper> keeper_;
  std::atomic<int64_t> num_pulls_ = 0;
  bool has_settled_ = false;          // since this process began
  int64_t lost_residual_rounds_ = 0;  // that no report has told yet
};

}  // namespace lodestar::trainer
