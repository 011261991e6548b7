// One worker with a small gpt on random tokens, and its server in memory: whole rounds, for tests.
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

inline constexpr int64_t kRigBatch = 6;  // samples per round: two micro-batches

class TrainingRig {
 public:
  // The job's model is replaced, and its bucket size if it is the default. `device`, `clock` and
  // `trace`, which may be null, outlive the rig.
  TrainingRig(JobSpec job, kernels::Device* device, bool overlap, TraceRecorder* trace = nullptr,
              Clock* clock = &Clock::Real(), bool pulls_ahead = false);
  // With another model of its job, on `device` and others.
  TrainingRig(JobSpec job, kernels::Device* device, std::unique_ptr<model::Model> model,
              bool overlap, TraceRecorder* trace = nullptr, Clock* clock = &Clock::Real(),
              bool pulls_ahead = false);
  ~TrainingRig();

  // Round 1 evaluates first. Where contributions are deferred, kIdle gives nothing to compute.
  enum class Work : uint8_t { kFull, kIdle };
  absl::StatusOr<RoundReport> RunRound(int64_t round, Work work);
  absl::StatusOr<RoundReport> RunRound(int64_t round, Grant::Kind kind = Grant::Kind::kTrain);

  LocalParameterServer& server() { return server_; }
  model::Model& model() { return *model_; }
  // From here on reading training data fails.
  void FailReading(const absl::Status& failure) { reading_ = failure; }
  // From here on the inputs of training are tokens below `limit`.
  void LimitTokens(int32_t limit) { token_limit_ = limit; }
  // From here on this life of the worker is over.
  void EndLife() { is_over_ = true; }
  // What the worker begins to do, "pull" for instance.
  std::function<void(absl::string_view)> on_activity_ = [](absl::string_view) {};
  // See RoundRunnerDeps.
  std::function<void(const RoundStep&)> on_step_ = [](const RoundStep&) {};
  std::function<void(const RoundReport&)> on_contributed_ = [](const RoundReport&) {};
  RoundRunner& runner() { return *runner_; }
  // In place of the server in memory, whose registration stays; it outlives the rounds.
  void UseTransport(client::ParameterTransport* transport) { transport_ = transport; }
  // In place of the job's.
  void UseRunner(std::unique_ptr<RoundRunner> runner) { runner_ = std::move(runner); }
  const RoundRunnerDeps& runner_deps() const { return runner_deps_; }
  // From here on each round ends after the step at hand, unless the rest of it fits into `time`.
  void RequestStop(absl::Duration time = absl::ZeroDuration()) {
    time_left_ns_ = absl::ToInt64Nanoseconds(time);
    is_stopping_ = true;
  }

 private:
  absl::StatusOr<RoundReport> Run(const Grant& grant);

  const JobSpec job_;
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

// What the rig makes of a job.
JobSpec SmallJob(JobSpec job);

struct TrainingOutcome {
  std::vector<float> weights;
  std::vector<double> losses;  // of training and evaluation
  friend bool operator==(const TrainingOutcome&, const TrainingOutcome&) = default;
};

// Three rounds, with weights that are pulled ahead if there is overlap. The test fails if one does.
TrainingOutcome TrainThreeRounds(const JobSpec& job, kernels::Device* device, bool overlap);
// With a rig that has other devices, or another micro-batch.
TrainingOutcome TrainThreeRounds(TrainingRig& rig);

}  // namespace lodestar::trainer
