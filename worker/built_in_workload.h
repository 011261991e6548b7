// BuiltInWorkload is the workload of gpu_worker: models of model_factory.h over files of data.
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
  bool own_partition = false;  // the data is local to this worker
  // The number of samples per forward and backward pass. If the worker's share of the batch is
  // larger, gradients are accumulated piece by piece. 0 means as many as fit; see
  // ChooseMicroBatch().
  int64_t max_micro_batch = 0;
  model::Recompute recompute = model::Recompute::kNone;
  // Says in which jobs the worker keeps the residual of error feedback on disk, which takes memory.
  KeepResiduals keep_residuals = KeepResiduals::kNever;
  bool shared_memory = true;  // see Worker::Config
};

class BuiltInWorkload final : public Workload {
 public:
  // Errors: those of OpenData().
  // `clock` must outlive the workload.
  static absl::StatusOr<std::unique_ptr<BuiltInWorkload>> Create(
      const BuiltInWorkloadConfig& config, Clock* clock);

  bool Serves(const Registration& registration) const override;
  absl::Status Prepare(const Registration& registration, const kernels::DeviceSet& devices,
                       data::StopRequested stop_requested) override;
  model::Model* model() override { return model_.get(); }
  const data::Dataset* dataset() const override { return dataset_.get(); }
  bool owns_partition() const override { return config_.own_partition; }

 private:
  // The properties of a job that model and data are made for.
  struct Made {
    ModelSpec model;
    uint64_t seed = 0;
    int64_t share = 0;   // largest number of samples of a step
    std::string layout;  // hash of the layout
    friend bool operator==(const Made&, const Made&) = default;
  };

  BuiltInWorkload(const BuiltInWorkloadConfig& config, data::DataSource data, Clock* clock)
      : config_(config), data_(std::move(data)), clock_(clock) {}
  static Made MadeFor(const Registration& registration);
  absl::Status MakeModelOf(const Registration& registration, Layout layout,
                           const kernels::DeviceSet& devices);
  // If config->max_batch is 0, sets it to what fits on every device. Logs how much memory model and
  // runner will take on the first device; the other devices hold nothing of the runner. Returns an
  // error if the model cannot fit.
  absl::Status PlanMemory(const Registration& registration, const kernels::DeviceSet& devices,
                          model::ModelConfig* config) const;

  const BuiltInWorkloadConfig config_;
  const data::DataSource data_;
  Clock* const clock_;
  std::optional<Made> made_;  // not set while model and data are not both made
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<data::Dataset> dataset_;
};

// Makes a worker with a BuiltInWorkload. Shared memory and, if config.residual_folder is set,
// keep_residuals are as `config` says. Errors: those of BuiltInWorkload::Create() and
// Worker::Create().
absl::StatusOr<std::unique_ptr<Worker>> MakeBuiltInWorker(const Worker::Config& config,
                                                          const BuiltInWorkloadConfig& workload,
                                                          Clock* clock);

}  // namespace lodestar::worker
