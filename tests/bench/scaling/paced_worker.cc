// SPDX-License-Identifier: Apache-2.0

// A gpu_worker whose model computes nothing and only takes time, like a card that leaves the
// processor alone. It serves trials of large models on machines that cannot train them, and of
// several workers on fewer processors. It is the real program, linked with -Wl,--wrap around the
// function that makes its model. Its gradients are zero.
//
// LODESTAR_STEP_SECONDS is the time from the beginning of one step to the beginning of the next. It
// includes the time of the inner optimizer, unless something else delays the worker.
// LODESTAR_SAMPLE_SECONDS, which replaces it, is the time per sample of a step, for jobs that
// divide the samples by speed. Both are means: a step takes up to 5 % less or more, like steps of
// real machines, so that workers do not stay in step with each other. The first third of a step is
// the forward pass, which needs the weights of one block after the other. The rest is the backward
// pass, which makes their gradients.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/params/layout.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"
#include "worker/model/device_memory.h"
#include "worker/model/model.h"

namespace lodestar {

absl::StatusOr<std::unique_ptr<model::Model>>
MakePacedModel(const model::ModelConfig& config, kernels::Device* device) __asm__(
    "__wrap__ZN8lodestar5model9MakeModelERKNS0_11ModelConfigEPNS_7kernels6DeviceE");

namespace {

class PacedModel final : public model::Model {
 public:
  static absl::StatusOr<std::unique_ptr<PacedModel>> Create(params::Layout layout,
                                                            kernels::Device* device) {
    auto model = std::unique_ptr<PacedModel>(new PacedModel(std::move(layout)));
    const int64_t elements = model->layout_.num_elements();
    const size_t bytes = elements * sizeof(float);
    ASSIGN_OR_RETURN(model->parameters_, model::DeviceMemory::Allocate(device, bytes));
    ASSIGN_OR_RETURN(model->gradients_, model::DeviceMemory::Allocate(device, bytes));
    device->Fill(model->gradients(), 0.0);
    return model;
  }

  const params::Layout& layout() const override { return layout_; }
  kernels::Buf parameters() override { return Vector(parameters_); }
  kernels::Buf gradients() override { return Vector(gradients_); }

  absl::StatusOr<model::BatchResult> TrainStep(const data::HostBatch& batch,
                                               model::WeightsGate* gate,
                                               model::GradientSink* sink) override {
    const absl::Duration step =
        (step_ == absl::ZeroDuration() ? batch.num_samples * sample_ : step_) * Unevenness();
    const int num_blocks = layout_.num_blocks();
    constexpr double kForward = 1.0 / 3.0;
    const absl::Duration forward_of_block = kForward * step / num_blocks;
    const absl::Duration backward_of_block = (1.0 - kForward) * step / num_blocks;
    // If the worker is late by less than half a step, the optimizer or a slow wake-up has delayed
    // it, and it catches up.
    if (absl::Now() - computed_ > step / 2) computed_ = absl::Now();
    for (int block = 0; block < num_blocks; ++block) {
      if (gate != nullptr) {
        const absl::Time asked = absl::Now();
        RETURN_IF_ERROR(gate->WaitForBlock(block));
        const absl::Time arrived = absl::Now();
        computed_ += std::max(absl::ZeroDuration(), std::min(arrived - computed_, arrived - asked));
      }
      Compute(forward_of_block);
    }
    if (sink != nullptr) sink->BackwardBegins();
    for (int block = num_blocks - 1; block >= 0; --block) {
      Compute(backward_of_block);
      if (sink != nullptr) {
        RETURN_IF_ERROR(sink->BlockReady(block));
      }
    }
    return Outcome(batch);
  }
  absl::StatusOr<model::BatchResult> Evaluate(const data::HostBatch& batch,
                                              model::WeightsGate* gate) override {
    for (int block = 0; gate != nullptr && block < layout_.num_blocks(); ++block) {
      RETURN_IF_ERROR(gate->WaitForBlock(block));
    }
    return Outcome(batch);
  }

 private:
  explicit PacedModel(params::Layout layout) : layout_(std::move(layout)) {
    const char* const step = std::getenv("LODESTAR_STEP_SECONDS");
    const char* const sample = std::getenv("LODESTAR_SAMPLE_SECONDS");
    LODESTAR_CHECK((step == nullptr) != (sample == nullptr))
        << "set one of LODESTAR_STEP_SECONDS and LODESTAR_SAMPLE_SECONDS";
    if (step != nullptr) step_ = absl::Seconds(std::atof(step));
    if (sample != nullptr) sample_ = absl::Seconds(std::atof(sample));
  }

  kernels::Buf Vector(const model::DeviceMemory& memory) const {
    return {memory.data(), kernels::DType::kF32, layout_.num_elements()};
  }
  void Compute(absl::Duration duration) {
    computed_ += duration;
    absl::SleepFor(computed_ - absl::Now());
  }
  double Unevenness() { return std::uniform_real_distribution<double>(0.95, 1.05)(random_); }
  static model::BatchResult Outcome(const data::HostBatch& batch) {
    return {.loss_sum = static_cast<double>(batch.num_samples),
            .num_predictions = batch.num_samples};
  }

  const params::Layout layout_;
  model::DeviceMemory parameters_;
  model::DeviceMemory gradients_;
  absl::Duration step_;  // 0 means that sample_ counts
  absl::Duration sample_;
  std::mt19937 random_{std::random_device()()};
  // Time until which its steps have kept the worker busy.
  absl::Time computed_ = absl::InfinitePast();
};

}  // namespace

absl::StatusOr<std::unique_ptr<model::Model>> MakePacedModel(const model::ModelConfig& config,
                                                             kernels::Device* device) {
  if (config.layout.has_value()) return PacedModel::Create(*config.layout, device);
  ASSIGN_OR_RETURN(params::Layout layout, params::BuildLayout(config.spec));
  return PacedModel::Create(std::move(layout), device);
}

}  // namespace lodestar
