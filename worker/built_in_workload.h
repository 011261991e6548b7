// SPDX-License-Identifier: Apache-2.0

// BuiltInWorkload is the workload of gpu_worker: it trains a model of model_factory.h on data
// files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "common/runtime/clock.h"
#include "worker/data/data_config.h"
#include "worker/data/dataset_factory.h"
#include "worker/model/model.h"
#include "worker/residual_folder.h"
#include "worker/worker.h"
#include "worker/workload.h"

namespace lodestar::worker {

struct BuiltInWorkloadConfig {
  data::DataConfig data;
  // True if the data is only on this worker, so that no other worker trains on it.
  bool own_partition = false;
  // Number of samples per forward and backward pass. If the worker's share of the batch is larger,
  // the gradients of several passes are added up. 0 means as many as fit in memory; see
  // ChooseMicroBatch().
  int64_t max_micro_batch = 0;
  model::Recompute recompute = model::Recompute::kNone;
  // Says in which jobs the worker stores the residual of error feedback on disk. Storing takes
  // memory.
  KeepResiduals keep_residuals = KeepResiduals::kNever;
  bool shared_memory = true;  // See Worker::Config.
};

class BuiltInWorkload final : public Workload {
 public:
  // Opens the data. `clock` must outlive the workload. Errors: those of OpenData().
  static absl::StatusOr<std::unique_ptr<BuiltInWorkload>> Create(
      const BuiltInWorkloadConfig& config, Clock* clock);

  bool Serves(const messages::Registration& registration) const override;
  absl::Status Prepare(const messages::Registration& registration,
                       const kernels::DeviceSet& devices,
                       data::StopRequested stop_requested) override;
  model::Model* model() override { return model_.get(); }
  const data::Dataset* dataset() const override { return dataset_.get(); }
  bool owns_partition() const override { return config_.own_partition; }

 private:
  // The job properties that `model_` and `data_` were made for.
  struct Made {
    params::ModelSpec model;
    uint64_t seed = 0;
    // Maximum number of samples per step.
    int64_t share = 0;
    std::string layout;  // Hash of the layout.
    friend bool operator==(const Made&, const Made&) = default;
  };

  BuiltInWorkload(const BuiltInWorkloadConfig& config, data::DataSource data, Clock* clock)
      : config_(config), data_(std::move(data)), clock_(clock) {}
  static Made MadeFor(const messages::Registration& registration);
  absl::Status MakeModelOf(const messages::Registration& registration, params::Layout layout,
                           const kernels::DeviceSet& devices);
  // Sets config->max_batch to the number that fits on every device, if max_batch is 0. Logs the
  // memory that model and runner will take on the first device. The other devices hold only the
  // model. Errors: those of CheckModelFits().
  absl::Status PlanMemory(const messages::Registration& registration,
                          const kernels::DeviceSet& devices, model::ModelConfig* config) const;

  const BuiltInWorkloadConfig config_;
  const data::DataSource data_;
  Clock* const clock_;
  // Not set until both model and data are made.
  std::optional<Made> made_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<data::Dataset> dataset_;
};

// Makes a worker with a BuiltInWorkload. In place of the value in `workload`, shared_memory is
// taken from `config`. If config.residual_folder is set, keep_residuals is taken from `config` too.
// Errors: those of BuiltInWorkload::Create() and Worker::Create().
absl::StatusOr<std::unique_ptr<Worker>> MakeBuiltInWorker(const Worker::Config& config,
                                                          const BuiltInWorkloadConfig& workload,
                                                          Clock* clock);

}  // namespace lodestar::worker
