// RoundRunner: what a worker does with one grant. It outlives a loss of the connection, and so does
// the state of a local optimizer in it. One class per way of training (gradients every step, many
// local steps), chosen in round_runner_factory.h.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/trace_recorder.h"
#include "kernels/device.h"
#include "worker/client/bulk_transport.h"
#include "worker/client/work_grant.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_order.h"
#include "worker/model/model.h"

namespace lodestar {

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
  // True once the worker has been told to stop: hand over what there is.
  std::function<bool()> stop_requested;
  // Told what the worker does now: "compute", or what it waits for servers with, "pull" or "push".
  std::function<void(absl::string_view)> on_activity;
};

// One life of the worker.
struct LifeContext {
  const Registration* registration = nullptr;
  const SampleOrder* sample_order = nullptr;
  ParameterTransport* transport = nullptr;
  // True once the life is over: nobody will take what it still computes. Looked at between steps.
  std::function<bool()> is_over = [] { return false; };

  // Aborted if it is over.
  absl::Status Check() const {
    return is_over() ? absl::AbortedError("this life ended while it computed") : absl::OkStatus();
  }
};

class RoundRunner {
 public:
  virtual ~RoundRunner() = default;

  // Carries out a kTrain or kEvaluate grant; returns when every server has acknowledged the
  // contribution. Errors: Aborted: this life is over, register again; Cancelled; anything else will
  // not succeed by retrying: data and device of this machine fail with FailedPrecondition, where
  // their own code would promise more.
  absl::StatusOr<RoundReport> Run(const LifeContext& life, const WorkGrant& grant);

 private:
  // Transfers that may succeed later are tried again within. Other errors are as they come.
  virtual absl::StatusOr<RoundReport> RunRound(const LifeContext& life, const WorkGrant& grant) = 0;
};

}  // namespace lodestar
