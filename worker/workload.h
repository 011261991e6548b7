// SPDX-License-Identifier: Apache-2.0

// Workload is the part of a job that a worker computes: the model, and the data that the model is
// trained on. There is one class for built-in models and data (built_in_workload.h), and one for
// programs that compute themselves (capi/caller_workload.h).
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

// Only one thread at a time may use a workload.
class Workload {
 public:
  virtual ~Workload() = default;

  // Returns the tensors of the program's own model, which the servers may not know. Not set means
  // that the workload uses the model of the servers' job. Called before each registration.
  virtual std::optional<messages::OfferedLayout> offered_layout() const { return std::nullopt; }
  // Returns settings for the job. The servers use them if their operator has not set them.
  virtual job::ProposedSettings proposed_settings() const { return {}; }

  // Called when a life begins.
  virtual void OnRegistered(const messages::Registration&) {}
  // Returns true if the model and data made by the last Prepare() also fit this job.
  virtual bool Serves(const messages::Registration& registration) const = 0;
  // Makes the job's model and data on `devices`, and destroys those of an earlier call, which must
  // not be in use any more. May take long, and therefore calls `stop_requested` from time to time.
  // Errors: FailedPrecondition (if the job has another model); ResourceExhausted; those of the
  // data.
  virtual absl::Status Prepare(const messages::Registration& registration,
                               const kernels::DeviceSet& devices,
                               data::StopRequested stop_requested) = 0;
  // Return null before Prepare().
  virtual model::Model* model() = 0;
  virtual const data::Dataset* dataset() const = 0;
  // Returns true if the data is only on this worker, so that no other worker trains on it.
  virtual bool owns_partition() const = 0;
  // Returns the information about the data that is sent to the servers. Requires: Prepare() was
  // called.
  messages::DatasetInfo data_info() const {
    return {.fingerprint = dataset()->fingerprint(),
            .num_train_samples = dataset()->num_train_samples(),
            .num_heldout_samples = dataset()->num_heldout_samples(),
            .tokens_per_sample = dataset()->tokens_per_sample(),
            .own_partition = owns_partition()};
  }

  // Returns true if the model makes local steps with its own optimizer, so that TrainStep() changes
  // the weights.
  virtual bool has_optimizer() const { return false; }
  // Returns true if a user's program computes the steps, reads the weights between rounds, and
  // wants the final weights of the job.
  virtual bool wants_last_weights() const { return false; }
  // Sets the function by which a step gets more samples for the grant that is carried out. It is
  // called on the thread that carries out rounds, and blocks. Errors: those of
  // CoordinatorLink::ExtendGrant() for which another try does not help.
  virtual void SetExtendGrant(
      std::function<absl::StatusOr<messages::Grant>(const messages::Grant&)>) {}
  // Called before each request for a grant. Returns true if the next step is to be made without the
  // samples of its grant.
  virtual bool AsksWithoutSamples() { return false; }
  // Called before a round is carried out. If contributions are deferred, steps of the last round
  // may still run on another thread.
  virtual void OnGrant(const messages::Grant&) {}
  // Called with the job's loss in each answer to a request for work. `loss` is empty if the worker
  // has to wait.
  virtual void OnLoss(const job::JobLoss&) {}
  // Called with the living workers, if a grant or the answer to a heartbeat has them. May be called
  // on the thread that sends heartbeats.
  virtual void OnLiveWorkers(const messages::LiveWorkers&) {}
  // Called before each step of the model.
  virtual void OnStep(const trainer::RoundStep&) {}
  // Called after the steps of a round, before the worker reads the model's parameters. If the
  // worker is stopping, there may be fewer steps than granted. If contributions are deferred, this
  // is also called between two steps, and always by the thread that makes the steps. An error ends
  // the round.
  virtual absl::Status OnStepsMade() { return absl::OkStatus(); }
  // See RoundRunnerDeps::on_weights.
  virtual std::function<void(const std::vector<Version>&)> on_weights() { return nullptr; }
  // Checks that a new job may begin with the model's parameters. Errors: FailedPrecondition (if the
  // parameters are not weights but mean gradients; see job::ReducesOnly()).
  virtual absl::Status CheckMaySupplyWeights(const job::JobSpec&) const { return absl::OkStatus(); }
  // Returns the state of the servers' optimizer that a new job begins with, besides the model's
  // parameters. Null means zeros.
  virtual const trainer::InitialState* initial_state() const { return nullptr; }
  // Called when the last weights of the job are in the model, before the worker leaves.
  virtual void OnLastWeights() {}
  // Called when a round was carried out. Adds to the report what only the workload knows.
  virtual void Complete(messages::RoundReport*) {}
};

}  // namespace lodestar::worker
