// SPDX-License-Identifier: Apache-2.0

// LocalSteps makes the local steps of a worker (local_sgd). It reads the samples of a grant, step
// by step, and trains on them. It owns the state of the inner optimizer from round to round and
// from life to life. If the worker is told to stop, an InnerStateStore stores the state for the
// next process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "worker/data/sample_order.h"
#include "worker/model/model.h"
#include "worker/trainer/device_timeline.h"
#include "worker/trainer/inner_optimizer.h"
#include "worker/trainer/inner_state_store.h"
#include "worker/trainer/round_runner.h"
#include "worker/trainer/window_end.h"

namespace lodestar::trainer {

class LocalSteps {
 public:
  // `deps` and `timeline` must outlive the object. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<LocalSteps>> Create(const job::JobSpec& job,
                                                            const RoundRunnerDeps& deps,
                                                            DeviceTimeline* timeline);

  // Must be called before the steps of `round`. The first call reads the state that an earlier
  // process has stored. If the servers have restarted and `round` is not after the last round, sets
  // the state to zero.
  void Begin(uint64_t server_incarnation, Round round);
  // Stores the state for the next process of this worker. Must be called between rounds. Does
  // nothing if there is no state, no store, or if Begin() was never called. Errors: those of the
  // store and the device.
  absl::Status KeepState();

  struct Work {
    const messages::Grant* grant = nullptr;
    const data::SampleOrder* order = nullptr;
    double clip_norm = 0.0;
    // Called before a block's weights are read for the first time. Null means that all weights have
    // arrived.
    model::WeightsGate* gate = nullptr;
    // Called before the parameters change. May be empty.
    std::function<absl::Status()> before_change = {};
  };
  // Trains on the samples of step number `step` of the grant: computes the gradient and changes the
  // weights. Adds losses and samples to *sums. Errors: those of data and device; Cancelled if the
  // user's program, which computes the steps, has left.
  absl::Status Take(const Work& work, int step, messages::RoundReport* sums);

  // Returns the object that decides whether a window ends before all its steps are made.
  WindowEnd& window_end() { return window_end_; }
  // Returns true if Take() has returned the status `taken` because the user's program has left
  // after a request to stop. The window then ends before step number `step`, which is logged.
  bool IsLeft(const messages::Grant& grant, int step, const absl::Status& taken) const;

  // Must be called after the steps of a round. If the state is not finite, sets the state to zero
  // and logs that. Errors: those of the device.
  absl::Status Check(Round round);

 private:
  LocalSteps(const job::JobSpec& job, const RoundRunnerDeps& deps, DeviceTimeline* timeline);
  // Reads the state that an earlier process has stored. Logs a warning if a stored state cannot be
  // used.
  void TakeUpState(Round round);
  // Replaces the state by `stored`. Errors: FailedPrecondition (if `stored` belongs to another
  // worker, job or model, or to a later round); those of the device.
  absl::Status TakeOver(const InnerStateStore::Stored& stored, Round round);
  absl::StatusOr<model::BatchResult> Step(const Work& work, double learning_rate);
  absl::StatusOr<model::BatchResult> TrainOnBatch(model::WeightsGate* gate);

  const RoundRunnerDeps& deps_;
  DeviceTimeline* const timeline_;
  WindowEnd window_end_;
  // Null means that the model has its own optimizer.
  std::unique_ptr<InnerOptimizer> inner_optimizer_;
  // Incarnation of the servers that the optimizer's state belongs to. 0 means that there is no such
  // state yet.
  uint64_t server_incarnation_ = 0;
  std::optional<Round> last_round_;  // The last round of Begin(). Not set means none.
  const std::string job_;            // InnerStateRecord::job.
  data::HostBatch batch_;
};

}  // namespace lodestar::trainer
