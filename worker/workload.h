// Workload is what one worker computes of a job: its model and the data that the model learns from.
// There is one class for built-in models and data (built_in_workload.h), and one for another
// program that computes (capi/caller_workload.h).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/job/proposed_settings.h"
#include "common/messages/cluster_messages.h"
#include "kernels/device_set.h"
#include "worker/data/data_file.h"
#include "worker/data/dataset.h"
#include "worker/model/model.h"
#include "worker/trainer/round_runner.h"

namespace lodestar::worker {

// One thread at a time may use a workload.
class Workload {
 public:
  virtual ~Workload() = default;

  // Returns the tensors of a model that the servers may not know, or nothing if the servers know
  // the model. This is called before each registration.
  virtual std::optional<OfferedLayout> offered_layout() const { return std::nullopt; }
  // Returns settings of the job for where the operator of the servers leaves them open.
  virtual ProposedSettings proposed_settings() const { return {}; }

  // This is called when a life begins.
  virtual void OnRegistered(const Registration&) {}
  // Returns true if the model and data that Prepare() made last serve this job as well.
  virtual bool Serves(const Registration& registration) const = 0;
  // Makes model and data of the job, on `devices`, in place of those made before, which must not be
  // in use any more. This may take long, and calls `stop_requested` now and then. Errors:
  // FailedPrecondition if the job is of another model; ResourceExhausted; those of the data.
  virtual absl::Status Prepare(const Registration& registration, const kernels::DeviceSet& devices,
                               data::StopRequested stop_requested) = 0;
  // Both return null before Prepare().
  virtual model::Model* model() = 0;
  virtual const data::Dataset* dataset() const = 0;
  // Returns true if the data is local to this worker, so that no other worker has its samples.
  virtual bool owns_partition() const = 0;
  // Returns what servers are told of the data. Prepare() must have been called before.
  DatasetInfo data_info() const {
    return {.fingerprint = dataset()->fingerprint(),
            .num_train_samples = dataset()->num_train_samples(),
            .num_heldout_samples = dataset()->num_heldout_samples(),
            .tokens_per_sample = dataset()->tokens_per_sample(),
            .own_partition = owns_partition()};
  }

  // Returns true if local steps are made by an optimizer of the model's own. TrainStep() then
  // leaves the weights of the next step.
  virtual bool has_optimizer() const { return false; }
  // Returns true if the program that computes also looks at the weights between rounds, and wants
  // the weights that the job ends with.
  virtual bool wants_last_weights() const { return false; }
  // This is called before a round is carried out. If contributions are deferred, steps of the round
  // before may still be made meanwhile, on another thread.
  virtual void OnGrant(const Grant&) {}
  // This is called before each step of the model.
  virtual void OnStep(const trainer::RoundStep&) {}
  // This is called when the steps of the round are made, and before the worker reads the model's
  // parameters. These are all the steps that were granted, or fewer if the worker is to stop. If
  // contributions are deferred, this is also called between two steps, by the thread that makes
  // them. Errors end the round.
  virtual absl::Status OnStepsMade() { return absl::OkStatus(); }
  // See RoundRunnerDeps::on_weights.
  virtual std::function<void(const std::vector<Version>&)> on_weights() { return nullptr; }
  // Returns OK if a job that begins anew may begin with the model's parameters. Errors:
  // FailedPrecondition if the parameters are no weights.
  virtual absl::Status CheckMaySupplyWeights(const JobSpec&) const { return absl::OkStatus(); }
  // This is called when a round was carried out. It adds to the round's report what only the
  // workload knows.
  virtual void Complete(RoundReport*) {}
};

}  // namespace lodestar::worker
