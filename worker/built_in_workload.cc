// SPDX-License-Identifier: Apache-2.0

#include "worker/built_in_workload.h"

#include <algorithm>
#include <utility>

#include "common/logging/logging.h"
#include "common/process/work_progress.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/status_macros.h"
#include "worker/client/shared_memory_plan.h"
#include "worker/model/model_memory.h"
#include "worker/trainer/round_runner_factory.h"

namespace lodestar::worker {

absl::StatusOr<std::unique_ptr<BuiltInWorkload>> BuiltInWorkload::Create(
    const BuiltInWorkloadConfig& config, Clock* clock) {
  ASSIGN_OR_RETURN(data::DataSource data, data::OpenData(config.data));
  return std::unique_ptr<BuiltInWorkload>(new BuiltInWorkload(config, std::move(data), clock));
}

BuiltInWorkload::Made BuiltInWorkload::MadeFor(const messages::Registration& registration) {
  const job::JobSpec& job = registration.job;
  return {job.model, job.seed, job::StepSamples(job), registration.layout().hash()};
}

bool BuiltInWorkload::Serves(const messages::Registration& registration) const {
  return made_ == MadeFor(registration);
}

absl::Status BuiltInWorkload::Prepare(const messages::Registration& registration,
                                      const kernels::DeviceSet& devices,
                                      data::StopRequested stop_requested) {
  const job::JobSpec& job = registration.job;
  ASSIGN_OR_RETURN(
      params::Layout layout,
      params::RecognizeLayout(job.model, "this worker", registration.layout(), "the server"));
  made_.reset();
  dataset_.reset();
  model_.reset();
  RETURN_IF_ERROR(MakeModelOf(registration, std::move(layout), devices));
  process::WorkProgress progress(data::NumBytesOf(data_), clock_->Now());
  const auto on_piece = [&](int64_t num_bytes) {
    if (const absl::Time now = clock_->Now(); progress.OnPiece(num_bytes, now)) {
      logging::LogInfo("data: {} of {} are read: {}", BytesText(progress.done()),
                       BytesText(progress.total()), progress.ShareText(now));
    }
    return stop_requested(num_bytes);
  };
  ASSIGN_OR_RETURN(dataset_, data::MakeDataset(data_, job.model, job.seed, on_piece));
  logging::LogInfo("data: {}", dataset_->Describe());
  made_ = MadeFor(registration);
  return absl::OkStatus();
}

absl::Status BuiltInWorkload::MakeModelOf(const messages::Registration& registration,
                                          params::Layout layout,
                                          const kernels::DeviceSet& devices) {
  const job::JobSpec& job = registration.job;
  model::ModelConfig config{.spec = job.model,
                            .max_batch = config_.max_micro_batch,
                            .recompute = config_.recompute,
                            .seed = job.seed,
                            .layout = std::move(layout)};
  RETURN_IF_ERROR(PlanMemory(registration, devices, &config));
  ASSIGN_OR_RETURN(model_, model::MakeModel(config, devices));
  return absl::OkStatus();
}

absl::Status BuiltInWorkload::PlanMemory(const messages::Registration& registration,
                                         const kernels::DeviceSet& devices,
                                         model::ModelConfig* config) const {
  const job::JobSpec& job = registration.job;
  ASSIGN_OR_RETURN(const params::Layout layout, params::BuildLayout(job.model));
  ASSIGN_OR_RETURN(const model::ModelMemory memory,
                   model::EstimateModelMemory(*config, &devices.first()));
  const int64_t batch_bytes = memory.batch_bytes_per_sample * job::StepSamples(job);
  const bool is_host = devices.first().capabilities().memory_is_host;
  const model::OtherMemory runner = {
      .device_bytes =
          trainer::RunnerDeviceBytes(job, layout, is_host) + (is_host ? batch_bytes : 0),
      .local_step_bytes = trainer::LocalStepsDeviceBytes(job, layout),
      .batch_bytes = batch_bytes,
      .pinned_bytes =
          trainer::RunnerPinnedBytes(job, layout, KeepsResidual(config_.keep_residuals, job)),
      .most_shared_bytes =
          config_.shared_memory ? client::SharedMemoryBytes(registration.buckets()) : int64_t{0}};
  const auto other_of = [&](const std::unique_ptr<kernels::Device>& device) {
    return device.get() == &devices.first() ? runner : model::OtherMemory{};
  };
  if (config->max_batch == 0) {
    const auto count = static_cast<int64_t>(devices.devices.size());
    config->max_batch = model::kMostChosenSamples;
    for (const std::unique_ptr<kernels::Device>& device : devices.devices) {
      const int64_t fitting = model::ChooseMicroBatch(
          memory, {.largest_share = (job::StepSamples(job) + count - 1) / count,
                   .free_bytes = static_cast<int64_t>(device->FreeMemoryBytes()),
                   .other_bytes = other_of(device).device_bytes,
                   .memory_is_host = device->capabilities().memory_is_host});
      config->max_batch = std::min(config->max_batch, fitting);
    }
  }
  logging::LogInfo("memory{}: {}", devices.devices.size() > 1 ? " of the first device" : "",
                   model::DescribeModelMemory(memory, *config, runner, &devices.first()));
  for (const std::unique_ptr<kernels::Device>& device : devices.devices) {
    RETURN_IF_ERROR(model::CheckModelFits(memory, *config, other_of(device), device.get()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Worker>> MakeBuiltInWorker(const Worker::Config& config,
                                                          const BuiltInWorkloadConfig& workload,
                                                          Clock* clock) {
  // The workload is made first. If this fails, no server has noticed the worker yet.
  BuiltInWorkloadConfig whole = workload;
  whole.shared_memory = config.shared_memory;
  if (!config.residual_folder.empty()) whole.keep_residuals = config.keep_residuals;
  ASSIGN_OR_RETURN(std::unique_ptr<BuiltInWorkload> built_in,
                   BuiltInWorkload::Create(whole, clock));
  return Worker::Create(config, std::move(built_in), clock);
}

}  // namespace lodestar::worker
