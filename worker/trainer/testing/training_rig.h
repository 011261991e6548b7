// SPDX-License-Identifier: Apache-2.0

// A worker with a small gpt on random tokens, and its parameter server in memory, for tests of
// whole rounds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/clock.h"
#include "kernels/device.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_order.h"
#include "worker/model/model.h"
#include "worker/trainer/round_runner.h"
#include "worker/trainer/testing/local_parameter_server.h"

namespace lodestar::trainer {

// Number of samples per round. They are divided into two micro-batches.
inline constexpr int64_t kRigBatch = 6;

class TrainingRig {
 public:
  // Replaces the job's model by a small one, and its bucket size if that is the default. `device`,
  // `clock` and `trace` must outlive the rig. `trace` may be null.
  TrainingRig(job::JobSpec job, kernels::Device* device, bool overlap,
              process::TraceRecorder* trace = nullptr, Clock* clock = &Clock::Real(),
              bool pulls_ahead = false);
  // Does the same as the other constructor, but uses `model`. The model may use other devices in
  // addition to `device`.
  TrainingRig(job::JobSpec job, kernels::Device* device, std::unique_ptr<model::Model> model,
              bool overlap, process::TraceRecorder* trace = nullptr, Clock* clock = &Clock::Real(),
              bool pulls_ahead = false);
  ~TrainingRig();

  // The number of steps in a round. kIdle means no steps, which is allowed only if contributions
  // are deferred. With kFull, round 1 begins with an evaluation.
  enum class Work : uint8_t { kFull, kIdle };
  absl::StatusOr<messages::RoundReport> RunRound(int64_t round, Work work);
  absl::StatusOr<messages::RoundReport> RunRound(
      int64_t round, messages::Grant::Kind kind = messages::Grant::Kind::kTrain);

  LocalParameterServer& server() { return server_; }
  model::Model& model() { return *model_; }
  // From now on, reading training data fails with this error.
  void FailReading(const absl::Status& failure) { reading_ = failure; }
  // From now on, the inputs of training are tokens below `limit`.
  void LimitTokens(int32_t limit) { token_limit_ = limit; }
  // Ends this life of the worker.
  void EndLife() { is_over_ = true; }
  // Called with each new activity of the worker, such as "pull".
  std::function<void(absl::string_view)> on_activity_ = [](absl::string_view) {};
  // Called like the fields of the same name in RoundRunnerDeps.
  std::function<void(const RoundStep&)> on_step_ = [](const RoundStep&) {};
  std::function<void(const messages::RoundReport&)> on_contributed_ =
      [](const messages::RoundReport&) {};
  RoundRunner& runner() { return *runner_; }
  // Uses `transport` instead of the server in memory, with the server's registration. `transport`
  // must outlive the rounds.
  void UseTransport(client::ParameterTransport* transport) { transport_ = transport; }
  // Replaces the job's runner.
  void UseRunner(std::unique_ptr<RoundRunner> runner) { runner_ = std::move(runner); }
  const RoundRunnerDeps& runner_deps() const { return runner_deps_; }
  // Tells the worker to stop. Each later round ends after the present step, unless the rest of the
  // round fits into `time`.
  void RequestStop(absl::Duration time = absl::ZeroDuration()) {
    time_left_ns_ = absl::ToInt64Nanoseconds(time);
    is_stopping_ = true;
  }

 private:
  absl::StatusOr<messages::RoundReport> Run(const messages::Grant& grant);

  const job::JobSpec job_;
  LocalParameterServer server_;
  client::ParameterTransport* transport_ = &server_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<int64_t> time_left_ns_ = 0;
  std::atomic<bool> is_over_ = false;
  absl::Status reading_;
  int32_t token_limit_ = std::numeric_limits<int32_t>::max();
  const std::unique_ptr<data::Dataset> dataset_;
  const data::SampleOrder order_;
  std::unique_ptr<model::Model> model_;
  RoundRunnerDeps runner_deps_;
  std::unique_ptr<RoundRunner> runner_;
};

// Returns `job` with the changes that the rig makes to it.
job::JobSpec SmallJob(job::JobSpec job);

struct TrainingOutcome {
  std::vector<float> weights;
  // The losses of training and evaluation.
  std::vector<double> losses;
  friend bool operator==(const TrainingOutcome&, const TrainingOutcome&) = default;
};

// Trains three rounds. If `overlap`, also pulls the weights of the next round ahead. The test fails
// if a round fails.
TrainingOutcome TrainThreeRounds(const job::JobSpec& job, kernels::Device* device, bool overlap);
// Trains three rounds like the function above, with `rig`. The rig may have other devices or
// another micro-batch.
TrainingOutcome TrainThreeRounds(TrainingRig& rig);

}  // namespace lodestar::trainer
