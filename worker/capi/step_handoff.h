// SPDX-License-Identifier: Apache-2.0

// StepHandoff: where the thread of a worker, which wants steps computed, meets the threads of the
// program that computes them. One step at a time.
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

// What the program is to compute with the weights as they are.
struct HandedStep {
  bool is_training = false;  // else the loss alone, of held-out samples
  trainer::RoundStep step;
  std::vector<data::SampleRef> samples;  // at least one
  int64_t first_position = 0;  // of the first among all samples of the job; where is_training
  trainer::StepForecast forecast = {};  // of the steps of training after it
};

// Thread-safe.
class StepHandoff {
 public:
  // Called by the worker. Blocks until the program has computed the step, and tells `sink`, if it
  // is not null, of blocks meanwhile. Errors: what the program's step has failed with; Cancelled
  // once it has left and had not taken the step, FailedPrecondition if it had; those of the sink.
  absl::StatusOr<model::BatchResult> Compute(HandedStep step, model::GradientSink* sink)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What the program has logged in the round whose steps came last; means over them.
  messages::Metrics MetricsOfRound() ABSL_LOCKS_EXCLUDED(mutex_);
  // No more steps come, and this is how the worker has ended.
  void End(const absl::Status& outcome) ABSL_LOCKS_EXCLUDED(mutex_);

  // Called by the program. Returns whether Next() would not block; waits for that for at most
  // `timeout`.
  bool AwaitNews(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until there is a step; none: the worker has ended well. Errors:
  // FailedPrecondition if the last step is not finished; what the worker has ended with.
  absl::StatusOr<std::optional<HandedStep>> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  // What is likely to come after the step that was taken; of nothing without one.
  trainer::StepForecast Forecast() ABSL_LOCKS_EXCLUDED(mutex_);
  // The gradient of the block will not change any more in the step that was taken. Blocks that are
  // not told of are ready with Finish(). Errors: FailedPrecondition without a step of training.
  absl::Status BlockReady(int block) ABSL_LOCKS_EXCLUDED(mutex_);
  // A number of the step of training that was taken; the last one counts. Errors: InvalidArgument
  // for a name that is none, and for one beyond kMaxMetrics in a round; FailedPrecondition without
  // such a step.
  absl::Status Log(absl::string_view name, double value) ABSL_LOCKS_EXCLUDED(mutex_);
  // The step that was taken is done, or has failed. Errors: FailedPrecondition without one.
  absl::Status Finish(absl::StatusOr<model::BatchResult> result) ABSL_LOCKS_EXCLUDED(mutex_);
  // The step of training that was taken has no gradient. Errors: FailedPrecondition without one, or
  // if a block was told of.
  absl::Status Skip() ABSL_LOCKS_EXCLUDED(mutex_);
  // The program takes no more steps, and does not finish the one that it may have.
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Metric {
    double sum = 0.0;  // over the steps that are done
    int64_t count = 0;
    std::optional<double> of_step;  // at hand
  };

  void EndStep(absl::StatusOr<model::BatchResult> result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  enum class State : uint8_t { kIdle, kOffered, kTaken, kFinished, kEnded };

  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  HandedStep step_ ABSL_GUARDED_BY(mutex_);                // kOffered, kTaken
  std::deque<int> ready_blocks_ ABSL_GUARDED_BY(mutex_);   // that the sink is to be told of
  bool has_ready_blocks_ ABSL_GUARDED_BY(mutex_) = false;  // or has been
  std::map<std::string, Metric> metrics_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<model::BatchResult> result_ ABSL_GUARDED_BY(mutex_);  // kFinished
  absl::Status outcome_ ABSL_GUARDED_BY(mutex_);                       // kEnded
  bool has_left_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar::capi
