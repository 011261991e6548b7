// Makes the local steps of a worker (local_sgd): it reads the samples of a grant, step by step, and
// trains on them. The inner optimizer's state stays here, from round to round and from life to
// life. If the worker is told to stop, an InnerStateStore keeps the state from process to process.
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
  // `deps` and `timeline` outlive the object. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<LocalSteps>> Create(const JobSpec& job,
                                                            const RoundRunnerDeps& deps,
                                                            DeviceTimeline* timeline);

  // Must be called before the steps of `round`. The first call takes up the state that an earlier
  // process has kept. Servers that began anew may have gone back to a round that the state has seen
  // already. In that case the state begins anew.
  void Begin(uint64_t server_incarnation, Round round);
  // Call between rounds: keeps the state for the next process, which goes on after the last round
  // that was begun here. Does nothing if there is no state, or if nothing was trained. Errors:
  // those of the store and the device.
  absl::Status KeepState();

  struct Work {
    const Grant* grant = nullptr;
    const data::SampleOrder* order = nullptr;
    double clip_norm = 0.0;
    // It is told before a block's weights are read for the first time. Null means that all weights
    // are there.
    model::WeightsGate* gate = nullptr;
    // It is called before the parameters change, and may be empty.
    std::function<absl::Status()> before_change = {};
  };
  // Computes the gradient and makes step number `step` of the grant. Adds to losses and samples of
  // *sums. Errors also: Cancelled if the program that computes has left.
  absl::Status Take(const Work& work, int step, RoundReport* sums);

  // Decides when the steps of a window end before their number.
  WindowEnd& window_end() { return window_end_; }
  // Whether a window ends before step number `step`, which returned `taken`. That is so if the
  // worker was told to stop and the program that computes has left before this step. In that case
  // it logs so.
  bool IsLeft(const Grant& grant, int step, const absl::Status& taken) const;

  // Must be called after the steps of a round. A state that is not finite begins anew. Errors:
  // those of the device.
  absl::Status Check(Round round);

 private:
  LocalSteps(const JobSpec& job, const RoundRunnerDeps& deps, DeviceTimeline* timeline);
  // Takes up the state that an earlier process has kept. Tells if there is none, or none to be
  // used.
  void TakeUpState(Round round);
  // Errors: FailedPrecondition naming what differs, there and here; those of the device.
  absl::Status TakeOver(const InnerStateStore::Stored& stored, Round round);
  absl::StatusOr<model::BatchResult> Step(const Work& work, double learning_rate);
  absl::StatusOr<model::BatchResult> TrainOnBatch(model::WeightsGate* gate);

  const RoundRunnerDeps& deps_;
  DeviceTimeline* const timeline_;
  WindowEnd window_end_;
  // Null means that the model has an optimizer of its own.
  std::unique_ptr<InnerOptimizer> inner_optimizer_;
  // The servers that its state belongs to. 0 means that there are none yet.
  uint64_t server_incarnation_ = 0;
  std::optional<Round> last_round_;  // The round that was begun last. nullopt means none.
  const std::string job_;            // See InnerStateRecord.
  data::HostBatch batch_;
};

}  // namespace lodestar::trainer
