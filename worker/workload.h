// Workload: what one worker computes of a job: its model and the data that it learns from. One
// class where both are built in (built_in_workload.h), one where another program computes
// (capi/caller_workload.h).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/cluster_messages.h"
#include "common/proposed_settings.h"
#include "kernels/device_set.h"
#include "worker/data/data_file.h"
#include "worker/data/dataset.h"
#include "worker/model/model.h"
#include "worker/trainer/round_runner.h"

namespace lodestar {

// Used by one thread at a time.
class Workload {
 public:
  virtual ~Workload() = default;

  // The tensors of a model that the servers may not know, before each registration; none: they know
  // it.
  virtual std::optional<OfferedLayout> offered_layout() const { return std::nullopt; }
  // Of the job, where the operator of the servers leaves them open.
  virtual ProposedSettings proposed_settings() const { return {}; }

  // A life begins.
  virtual void OnRegistered(const Registration&) {}
  // Whether model and data that Prepare() made last serve this job, too.
  virtual bool Serves(const Registration& registration) const = 0;
  // Makes model and data of the job, on `devices`, in place of those made before, which nobody uses
  // any more. May take long, and asks `stop_requested` now and then. Errors: FailedPrecondition if
  // the job is of another model; ResourceExhausted; those of the data.
  virtual absl::Status Prepare(const Registration& registration, const DeviceSet& devices,
                               StopRequested stop_requested) = 0;
  // Null before Prepare().
  virtual Model* model() = 0;
  virtual const Dataset* dataset() const = 0;
  // The data is local to this worker: samples are its own.
  virtual bool owns_partition() const = 0;
  // After Prepare(): what servers are told of the data.
  DatasetInfo data_info() const {
    return {.fingerprint = dataset()->fingerprint(),
            .num_train_samples = dataset()->num_train_samples(),
            .num_heldout_samples = dataset()->num_heldout_samples(),
            .tokens_per_sample = dataset()->tokens_per_sample(),
            .own_partition = owns_partition()};
  }

  // Whether local steps are made by an optimizer of the model's own: TrainStep() leaves the weights
  // of the next step.
  virtual bool has_optimizer() const { return false; }
  // Whether whoever computes looks at the weights between rounds, too, and wants those that the job
  // ends with.
  virtual bool wants_last_weights() const { return false; }
  // A round is carried out next. Where contributions are deferred, steps of the round before may
  // still be made meanwhile, on another thread.
  virtual void OnGrant(const Grant&) {}
  // Comes before each step of the model.
  virtual void OnStep(const RoundStep&) {}
  // Steps of the round are made, all that are granted or fewer if the worker is to stop: the
  // model's parameters are looked at next. Where contributions are deferred, between two steps,
  // too, and by the thread that makes them. Errors end the round.
  virtual absl::Status OnStepsMade() { return absl::OkStatus(); }
  // See RoundRunnerDeps::on_weights.
  virtual std::function<void(const std::vector<Version>&)> on_weights() { return nullptr; }
  // Whether a job that begins anew may have the model's parameters to begin with. Errors:
  // FailedPrecondition if they are no weights.
  virtual absl::Status CheckMaySupplyWeights(const JobSpec&) const { return absl::OkStatus(); }
  // A round was carried out: adds to its report what only the workload knows.
  virtual void Complete(RoundReport*) {}
};

}  // namespace lodestar
