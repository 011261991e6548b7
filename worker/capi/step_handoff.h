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
#include <functional>
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
  // At least one sample, except for a training step after KeepSamples().
  std::vector<data::SampleRef> samples;
  // Position of the first sample among all samples of the job. Set only if is_training.
  int64_t first_position = 0;
  // Pass over the data in which the round began, or with local steps the step. Set only if
  // is_training.
  int64_t pass = 0;
  trainer::StepForecast forecast = {};  // The training steps after this one.
};

// More samples for a step. See HandedStep for the fields.
struct ExtraSamples {
  std::vector<data::SampleRef> samples;
  int64_t first_position = 0;
  trainer::StepForecast forecast = {};
};

// Thread-safe.
class StepHandoff {
 public:
  // Gets more samples for the step that the program computes. Called on the worker's thread.
  using GetMore = std::function<absl::StatusOr<ExtraSamples>()>;

  // Must be called by the worker. Blocks until the program has computed the step. Meanwhile, calls
  // `sink` for each block that is ready, unless `sink` is null, and `get_more` for each Extend().
  // Errors: those of the program's step, of `sink` and of `get_more`; Cancelled (if the program has
  // left before it took the step); FailedPrecondition (if the program has left during the step).
  absl::StatusOr<model::BatchResult> Compute(HandedStep step, model::GradientSink* sink,
                                             const GetMore& get_more) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the number of samples by which Extend() has extended the latest step.
  int64_t num_extra_samples() ABSL_LOCKS_EXCLUDED(mutex_);
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
  // Gets more samples for the training step that the program has taken, and returns the step with
  // these samples in place of the earlier ones. Blocks until the worker has them. Errors:
  // FailedPrecondition (if the program has not taken a training step, or has reported a block as
  // ready); the errors of get_more, after which the step is over and counts as not computed.
  absl::StatusOr<HandedStep> Extend() ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets the worker ask for steps without samples from now on. The program gets them by Extend().
  void KeepSamples() ABSL_LOCKS_EXCLUDED(mutex_);
  bool keeps_samples() ABSL_LOCKS_EXCLUDED(mutex_);
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
  // Returns true if the program has taken a step and not finished it.
  bool has_step() ABSL_LOCKS_EXCLUDED(mutex_);
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

  // Requires: the state is kExtending. Calls `get_more`, for which it gives up the lock. Afterwards
  // the state is kTaken again, or kIdle after an error, which it returns.
  absl::Status GetMoreSamples(const GetMore& get_more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // kExtending means that Extend() waits for samples.
  enum class State : uint8_t { kIdle, kOffered, kTaken, kExtending, kFinished, kEnded };

  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  HandedStep step_ ABSL_GUARDED_BY(mutex_);                // valid in kOffered and kTaken
  int64_t num_extra_samples_ ABSL_GUARDED_BY(mutex_) = 0;  // by which step_ was extended
  bool keeps_samples_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status extended_ ABSL_GUARDED_BY(mutex_);          // result of the last kExtending
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
