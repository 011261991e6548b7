#include "worker/built_in_workload.h"

#include <utility>

#include "common/logging.h"
#include "common/status_macros.h"
#include "worker/model/model_memory.h"
#include "worker/trainer/round_runner_factory.h"

namespace lodestar {

absl::StatusOr<std::unique_ptr<BuiltInWorkload>> BuiltInWorkload::Create(
    const BuiltInWorkloadConfig& config) {
  ASSIGN_OR_RETURN(DataSource data, OpenData(config.data));
  return std::unique_ptr<BuiltInWorkload>(new BuiltInWorkload(config, std::move(data)));
}

BuiltInWorkload::Made BuiltInWorkload::MadeFor(const Registration& registration) {
  const JobSpec& job = registration.job;
  return {job.model, job.seed, StepSamples(job), registration.layout().hash()};
}

bool BuiltInWorkload::Serves(const Registration& registration) const {
  return made_ == MadeFor(registration);
}

absl::Status BuiltInWorkload::Prepare(const Registration& registration, Device* device,
                                      StopRequested stop_requested) {
  const JobSpec& job = registration.job;
  ASSIGN_OR_RETURN(Layout layout,
                   RecognizeLayout(job.model, "this worker", registration.layout(), "the server"));
  made_.reset();
  dataset_.reset();
  model_.reset();
  RETURN_IF_ERROR(MakeModelOf(job, std::move(layout), device));
  ASSIGN_OR_RETURN(dataset_, MakeDataset(data_, job.model, job.seed, stop_requested));
  LogInfo("data: {}", dataset_->Describe());
  made_ = MadeFor(registration);
  return absl::OkStatus();
}

absl::Status BuiltInWorkload::MakeModelOf(const JobSpec& job, Layout layout, Device* device) {
  ModelConfig config{.spec = job.model,
                     .max_batch = config_.max_micro_batch,
                     .recompute = config_.recompute,
                     .seed = job.seed,
                     .layout = std::move(layout)};
  RETURN_IF_ERROR(PlanMemory(job, device, &config));
  ASSIGN_OR_RETURN(model_, MakeModel(config, device));
  return absl::OkStatus();
}

absl::Status BuiltInWorkload::PlanMemory(const JobSpec& job, Device* device,
                                         ModelConfig* config) const {
  ASSIGN_OR_RETURN(const Layout layout, BuildLayout(job.model));
  ASSIGN_OR_RETURN(const ModelMemory memory, EstimateModelMemory(*config, device));
  const OtherMemory runner = {
      .device_bytes = RunnerDeviceBytes(job, layout),
      .pinned_bytes = RunnerPinnedBytes(job, layout, KeepsResidual(config_.keep_residuals, job))};
  if (config->max_batch == 0) {
    config->max_batch =
        ChooseMicroBatch(memory, {.largest_share = StepSamples(job),
                                  .free_bytes = static_cast<int64_t>(device->FreeMemoryBytes()),
                                  .other_bytes = runner.device_bytes,
                                  .memory_is_host = device->capabilities().memory_is_host});
  }
  LogInfo("memory: {}", DescribeModelMemory(memory, *config, runner, device));
  return CheckModelFits(memory, *config, runner, device);
}

absl::StatusOr<std::unique_ptr<Worker>> MakeBuiltInWorker(const Worker::Config& config,
                                                          const BuiltInWorkloadConfig& workload,
                                                          Clock* clock) {
  // First what costs nothing to put right: nobody is connected yet.
  BuiltInWorkloadConfig whole = workload;
  if (!config.residual_folder.empty()) whole.keep_residuals = config.keep_residuals;
  ASSIGN_OR_RETURN(std::unique_ptr<BuiltInWorkload> built_in, BuiltInWorkload::Create(whole));
  return Worker::Create(config, std::move(built_in), clock);
}

}  // namespace lodestar
