// The local steps of a worker (local_sgd): reads the samples of a grant, step by step, and trains
// on them. The inner optimizer's state stays here, from round to round and from life to life.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/cluster_messages.h"
#include "common/ids.h"
#include "common/job_spec.h"
#include "worker/data/sample_order.h"
#include "worker/model/model.h"
#include "worker/trainer/device_timeline.h"
#include "worker/trainer/inner_optimizer.h"
#include "worker/trainer/round_runner.h"
#include "worker/trainer/window_end.h"

namespace lodestar {

class LocalSteps {
 public:
  // `deps` and `timeline` outlive the object. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<LocalSteps>> Create(const JobSpec& job,
                                                            const RoundRunnerDeps& deps,
                                                            DeviceTimeline* timeline);

  // Before the steps of a round. Servers that began anew may have gone back to other weights than
  // those the state belongs to: then it begins anew, too.
  void Begin(uint64_t server_incarnation);

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
  LocalSteps(const RoundRunnerDeps& deps, DeviceTimeline* timeline)
      : deps_(deps), timeline_(timeline), window_end_(deps.stop_requested, deps.time_left) {}
  absl::StatusOr<BatchResult> Step(const Work& work, double learning_rate);
  absl::StatusOr<BatchResult> TrainOnBatch(WeightsGate* gate);

  const RoundRunnerDeps& deps_;
  DeviceTimeline* const timeline_;
  WindowEnd window_end_;
  std::unique_ptr<InnerOptimizer> inner_optimizer_;  // null: the model has one of its own
  uint64_t server_incarnation_ = 0;                  // that its state belongs to; 0: none yet
  HostBatch batch_;
};

}  // namespace lodestar
