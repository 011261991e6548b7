// SPDX-License-Identifier: Apache-2.0

// StepHandoff passes steps, one at a time, from the thread of a worker to the threads of the
// program that computes them.
//
//   worker        Compute() ......................................... returns
//                    |  offered                          ^ blocks, one by one ^ done
//                    v                                   |                    |
//   program       Next() returns ... forward, backward: BlockReady() ... Finish()
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/messages/program_metrics.h"
#include "worker/data/dataset.h"
#include "worker/model/model.h"
#include "worker/trainer/round_runner.h"
#include "worker/trainer/step_forecast.h"

namespace lodestar::capi {

// A step that the program computes with the present weights.
struct HandedStep {
  bool is_training = false;  // False means an evaluation: only the loss of held-out samples.
  trainer::RoundStep step;
  std::vector<data::SampleRef> samples;  // At least one sample.
  // Position of the first sample among all samples of the job. Set only if is_training.
  int64_t first_position = 0;
  trainer::StepForecast forecast = {};  // The training steps after this one.
};

// Thread-safe.
class StepHandoff {
 public:
  // Must be called by the worker. Blocks until the program has computed the step. Meanwhile, calls
  // `sink` for each block that is ready, unless `sink` is null. Errors: those of the program's step
  // and of `sink`; Cancelled (if the program has left before it took the step); FailedPrecondition
  // (if the program has left during the step).
  absl::StatusOr<model::BatchResult> Compute(HandedStep step, model::GradientSink* sink)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the means of the metrics that the program has logged in the latest round.
  messages::Metrics MetricsOfRound() ABSL_LOCKS_EXCLUDED(mutex_);
  // Must be called by the worker when it has ended with `outcome` and offers no more steps.
  void End(const absl::Status& outcome) ABSL_LOCKS_EXCLUDED(mutex_);

  // Must be called by the program. Blocks until Next() would not block, but at most for `timeout`.
  // Returns true if Next() would not block.
  bool AwaitNews(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until there is a step, and takes it. Returns nullopt if the worker has ended without an
  // error. Errors: FailedPrecondition (if the last step is not finished); the error that the worker
  // has ended with.
  absl::StatusOr<std::optional<HandedStep>> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns what is known about the steps after the step that the program has taken. Returns an
  // empty forecast if it has taken no step.
  trainer::StepForecast Forecast() ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports that the gradient of the block will not change any more in this step. Finish() reports
  // all other blocks. Errors: FailedPrecondition (if the program has not taken a training step).
  absl::Status BlockReady(int block) ABSL_LOCKS_EXCLUDED(mutex_);
  // Stores the program's learning rate of this training step for a block. Block -1 means all blocks
  // that have no rate of their own. Errors: FailedPrecondition (the program has not taken a
  // training step, or a block of the step is already ready).
  absl::Status SetLearningRate(int block, double rate) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the stored learning rate of the block. Not set means that the program has stored none
  // for this step. The worker calls this while Compute() runs.
  std::optional<double> learning_rate(int block) ABSL_LOCKS_EXCLUDED(mutex_);
  // Stores the weight of this training step in the mean over the workers. Errors:
  // FailedPrecondition (the program has not taken a training step, or a block of the step is
  // already ready).
  absl::Status SetWeight(int64_t weight) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the sum of the weights of the round's steps so far. Not set means that the program has
  // stored none.
  std::optional<int64_t> weight_of_round() ABSL_LOCKS_EXCLUDED(mutex_);
  // Stores a number of this training step. If a name is logged twice in a step, the last value
  // counts. Errors: InvalidArgument (if the name is not valid, or the round would have more than
  // kMaxMetrics names); FailedPrecondition (if the program has not taken a training step).
  absl::Status Log(absl::string_view name, double value) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the step that the program has taken, with a result or an error. Errors: FailedPrecondition
  // (if the program has not taken a step).
  absl::Status Finish(absl::StatusOr<model::BatchResult> result) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the training step without a gradient. Errors: FailedPrecondition (if the program has not
  // taken a training step, or has reported a block as ready).
  absl::Status Skip() ABSL_LOCKS_EXCLUDED(mutex_);
  // Must be called when the program takes no more steps. A step that it has taken is not finished.
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Metric {
    double sum = 0.0;  // sum over the finished steps
    int64_t count = 0;
    std::optional<double> of_step;  // value in the present step
  };

  // Checks that `what` can still be stored in this training step. Errors: FailedPrecondition.
  absl::Status CheckBeforeBlocks(absl::string_view what) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndStep(absl::StatusOr<model::BatchResult> result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  enum class State : uint8_t { kIdle, kOffered, kTaken, kFinished, kEnded };

  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  HandedStep step_ ABSL_GUARDED_BY(mutex_);                // valid in kOffered and kTaken
  std::deque<int> ready_blocks_ ABSL_GUARDED_BY(mutex_);   // not yet reported to the sink
  bool has_ready_blocks_ ABSL_GUARDED_BY(mutex_) = false;  // true if the step had ready blocks
  std::map<int, double> learning_rates_ ABSL_GUARDED_BY(mutex_);  // of step_, by block
  std::optional<int64_t> weight_ ABSL_GUARDED_BY(mutex_);         // of step_
  // Sum of the weights of the round's steps before step_.
  std::optional<int64_t> weight_before_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Metric> metrics_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<model::BatchResult> result_ ABSL_GUARDED_BY(mutex_);  // valid in kFinished
  absl::Status outcome_ ABSL_GUARDED_BY(mutex_);                       // valid in kEnded
  bool has_left_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar::capi
