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
#include "worker/trainer/grant_samples.h"
#include "worker/trainer/inner_state_store.h"
#include "worker/trainer/life_context.h"
#include "worker/trainer/residual_keeper.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar {

// A step that is to be made: of training, or of an evaluation, where step and learning rate say
// nothing.
struct RoundStep {
  Round round;
  int step = 0;  // of the round
  int num_steps = 1;
  SampleSpan samples = {};  // of training
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
  // The next round's weights are asked for before its grant has come, and arrive while the grant
  // does. Not for those who look at parameters between rounds; without effect where it is not known
  // which weights the next round begins with.
  bool pulls_ahead = false;
  // Local steps are made by the model: TrainStep() leaves changed parameters().
  bool model_has_optimizer = false;
  // Comes once all that is contributed to a round is on its way, with the report of it, before that
  // is acknowledged; null: nobody asks. Not where contributions are deferred: their way is hidden.
  std::function<void(const RoundReport&)> on_contributed = nullptr;
  // Keeps what error feedback has, where the job has it; null: it ends with the process. Nothing is
  // pushed then before all of a contribution is made, and written.
  ResidualStore* residuals = nullptr;
  // Keeps the state of an inner optimizer from one process to the next; null: it ends with the
  // process.
  InnerStateStore* inner_states = nullptr;
  // Comes before each step of the model.
  std::function<void(const RoundStep&)> on_step = [](const RoundStep&) {};
  // Comes after local steps, before anybody looks at the parameters that they have left: at the end
  // of a round's, and where weights of the servers are merged into parameters between two of them.
  // Errors end the round.
  std::function<absl::Status()> on_steps_made = [] { return absl::OkStatus(); };
  // Told the versions of all buckets before anything is computed with them; null: nobody asks, and
  // computing may begin while weights still arrive.
  std::function<void(const std::vector<Version>&)> on_weights = nullptr;
  // True once the worker has been told to stop: hand over what there is.
  std::function<bool()> stop_requested;
  // From then on: until the worker is to be gone. Local steps that fit into it are still made;
  // zero: none after the one at hand.
  std::function<absl::Duration()> time_left = [] { return absl::ZeroDuration(); };
  // Told what the worker does now: "compute", or what it waits for servers with, "pull" or "push".
  std::function<void(absl::string_view)> on_activity;
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
  // The job is done: removes what was kept for another process.
  void ForgetResidual();

  // The weights once all rounds before `min_round` are over, into the model's parameters. Errors:
  // as Run().
  virtual absl::Status PullWeights(const LifeContext& life, Round min_round) = 0;
  // The worker was told to stop, and its work is handed in: keeps what the next process of its name
  // goes on with, see RoundRunnerDeps::inner_states. Errors: those of files and of the device.
  virtual absl::Status KeepOptimizerState() { return absl::OkStatus(); }
  // Gives the servers the model's present parameters to begin with. Errors: as Run().
  absl::Status HandInInitialWeights(const Registration& registration,
                                    ParameterTransport* transport);
  // What was begun for a round to come does not use the registration and the transport of the last
  // Run() any more. Before they go.
  virtual void EndLife() = 0;
  // Of weights, or of parts of them, that were used; over all lives.
  int64_t num_pulls() const { return num_pulls_; }

 protected:
  explicit RoundRunner(const RoundRunnerDeps& deps)
      : deps_(deps), timeline_(deps.device, deps.trace) {}

  // How the buckets of a contribution leave.
  ContributionPush::Leaves leaves() const {
    return deps_.residuals == nullptr ? ContributionPush::Leaves::kAtOnce
                                      : ContributionPush::Leaves::kWithFinish;
  }
  // Before a contribution is begun: what ResidualKeeper::Settle() returns. Tells once if this
  // process takes the worker's place in the job without what error feedback had.
  absl::StatusOr<std::optional<RoundReport>> SettleResidual(const LifeContext& life, Round round);
  // Adds loss and accuracy over the grant's held-out samples, with the model's present weights, to
  // *report, and the time that computing it took, without waiting for `pull`, which brings them;
  // null: they are there. Does nothing if the grant has none. Ends between passes of the model once
  // the worker is told to stop: the report of a round that trains then has no held-out samples.
  // Errors: those of data, model and pull; Aborted if the life is over; Cancelled if the worker is
  // told to stop and the grant is for an evaluation alone.
  absl::Status EvaluateHeldout(const LifeContext& life, const Grant& grant, WeightsPull* pull,
                               RoundReport* report);
  // `push` has all of a contribution to the round that `report` tells of, and nobody may have
  // counted it: it is pushed again if its round is granted again. Errors: those of the device.
  absl::Status Keep(const LifeContext& life, ContributionPush& push, const RoundReport& report);
  // What was asked for is used, or will be. By one thread at a time.
  void CountPull() { ++num_pulls_; }
  // All of it is on its way.
  void TellContributed(RoundReport report);
  // The servers have acknowledged it.
  void ForgetKept() { kept_.reset(); }

  const RoundRunnerDeps deps_;
  DeviceTimeline timeline_;
  std::unique_ptr<ExchangeState> exchange_;  // set before the first round

 private:
  // Transfers that may succeed later are tried again within. Other errors are as they come.
  virtual absl::StatusOr<RoundReport> RunRound(const LifeContext& life, const Grant& grant) = 0;
  // What was made for the round is pushed once more. Errors: as RunRound().
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

}  // namespace lodestar
