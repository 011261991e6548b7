// The workload of gpu_worker: models of model_factory.h over files of data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/job_spec.h"
#include "common/layout.h"
#include "common/model_spec.h"
#include "worker/data/data_config.h"
#include "worker/data/dataset_factory.h"
#include "worker/model/model.h"
#include "worker/residual_folder.h"
#include "worker/worker.h"
#include "worker/workload.h"

namespace lodestar {

struct BuiltInWorkloadConfig {
  DataConfig data;
  bool own_partition = false;  // the data is local to this worker
  // Samples per forward and backward; a larger share of the batch is accumulated piece by piece.
  // 0: what fits, see ChooseMicroBatch().
  int64_t max_micro_batch = 0;
  Recompute recompute = Recompute::kNone;
  // Whose residual of error feedback the worker keeps on disk, which takes memory.
  KeepResiduals keep_residuals = KeepResiduals::kNever;
  bool shared_memory = true;  // with servers of this machine, see Worker::Config
};

class BuiltInWorkload final : public Workload {
 public:
  // Errors: those of OpenData().
  // `clock` outlives this.
  static absl::StatusOr<std::unique_ptr<BuiltInWorkload>> Create(
      const BuiltInWorkloadConfig& config, Clock* clock);

  bool Serves(const Registration& registration) const override;
  absl::Status Prepare(const Registration& registration, const DeviceSet& devices,
                       StopRequested stop_requested) override;
  Model* model() override { return model_.get(); }
  const Dataset* dataset() const override { return dataset_.get(); }
  bool owns_partition() const override { return config_.own_partition; }

 private:
  // What model and data are made for.
  struct Made {
    ModelSpec model;
    uint64_t seed = 0;
    int64_t share = 0;   // most samples of a step
    std::string layout;  // its hash
    friend bool operator==(const Made&, const Made&) = default;
  };

  BuiltInWorkload(const BuiltInWorkloadConfig& config, DataSource data, Clock* clock)
      : config_(config), data_(std::move(data)), clock_(clock) {}
  static Made MadeFor(const Registration& registration);
  absl::Status MakeModelOf(const Registration& registration, Layout layout,
                           const DeviceSet& devices);
  // Fills in config->max_batch if it is 0: what fits on every device. Logs what model and runner
  // will take on the first, which has the runner's; refuses what cannot fit.
  absl::Status PlanMemory(const Registration& registration, const DeviceSet& devices,
                          ModelConfig* config) const;

  const BuiltInWorkloadConfig config_;
  const DataSource data_;
  Clock* const clock_;
  std::optional<Made> made_;  // none: nothing, or not all of it
  std::unique_ptr<Model> model_;
  std::unique_ptr<Dataset> dataset_;
};

// A worker with it; what it keeps of residuals is as `config` says. Errors: those of
// BuiltInWorkload::Create() and Worker::Create().
absl::StatusOr<std::unique_ptr<Worker>> MakeBuiltInWorker(const Worker::Config& config,
                                                          const BuiltInWorkloadConfig& workload,
                                                          Clock* clock);

}  // namespace lodestar
