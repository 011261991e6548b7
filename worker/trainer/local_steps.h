// The local steps of a worker (local_sgd): reads the samples of a grant, step by step, and trains
// on them. The inner optimizer's state stays here, from round to round and from life to life, and,
// if the worker is told to stop, in an InnerStateStore from process to process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/cluster_messages.h"
#include "common/ids.h"
#include "common/job_spec.h"
#include "worker/data/sample_order.h"
#include "worker/model/model.h"
#include "worker/trainer/device_timeline.h"
#include "worker/trainer/inner_optimizer.h"
#include "worker/trainer/inner_state_store.h"
#include "worker/trainer/round_runner.h"
#include "worker/trainer/window_end.h"

namespace lodestar {

class LocalSteps {
 public:
  // `deps` and `timeline` outlive the object. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<LocalSteps>> Create(const JobSpec& job,
                                                            const RoundRunnerDeps& deps,
                                                            DeviceTimeline* timeline);

  // Before the steps of `round`. The first time it takes up what a process before this one has
  // kept. Servers that began anew may have gone back to a round that the state has seen already:
  // then the state begins anew, too.
  void Begin(uint64_t server_incarnation, Round round);
  // Call between rounds: keeps the state for the next process, which goes on after the last round
  // that was begun here. Does nothing if there is no state, or if nothing was trained. Errors:
  // those of the store and the device.
  absl::Status KeepState();

  struct Work {
    const Grant* grant = nullptr;
    const SampleOrder* order = nullptr;
    double clip_norm = 0.0;
    // Told before a block's weights are read for the first time; null: they are all there.
    WeightsGate* gate = nullptr;
    // Comes before the parameters change; may be empty.
    std::function<absl::Status()> before_change = {};
  };
  // Gradient and step number `step` of the grant; adds to losses and samples of *sums. Cancelled if
  // who computes has left.
  absl::Status Take(const Work& work, int step, RoundReport* sums);

  // When the steps of a window end before their number.
  WindowEnd& window_end() { return window_end_; }
  // Of a worker that was told to stop, when step number `step` came to `taken`: who computes has
  // left before it, and the window ends with the steps before. Tells so.
  bool IsLeft(const Grant& grant, int step, const absl::Status& taken) const;

  // After the steps of a round. State that is not finite begins anew. Errors: those of the device.
  absl::Status Check(Round round);

 private:
  LocalSteps(const JobSpec& job, const RoundRunnerDeps& deps, DeviceTimeline* timeline);
  // What a process before this one has kept. Tells if there is none, or none to be used.
  void TakeUpState(Round round);
  // Errors: FailedPrecondition naming what differs, there and here; those of the device.
  absl::Status TakeOver(const InnerStateStore::Stored& stored, Round round);
  absl::StatusOr<BatchResult> Step(const Work& work, double learning_rate);
  absl::StatusOr<BatchResult> TrainOnBatch(WeightsGate* gate);

  const RoundRunnerDeps& deps_;
  DeviceTimeline* const timeline_;
  WindowEnd window_end_;
  std::unique_ptr<InnerOptimizer> inner_optimizer_;  // null: the model has one of its own
  uint64_t server_incarnation_ = 0;                  // that its state belongs to; 0: none yet
  std::optional<Round> last_round_;                  // that was begun; nullopt: none
  const std::string job_;                            // see InnerStateRecord
  HostBatch batch_;
};

}  // namespace lodestar
