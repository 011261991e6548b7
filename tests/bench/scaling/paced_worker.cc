// A gpu_worker whose model computes nothing and takes its time, as one whose card computes and
// leaves the processor alone: for exchanges of large models on machines that could not train them,
// and of several workers on fewer processors. It is the program itself, linked with -Wl,--wrap
// around the function that makes its model. Its gradients are zero. LODESTAR_STEP_SECONDS is from
// the beginning of one step to that of the next, with what the inner optimizer takes, unless
// something else holds the worker up. LODESTAR_SAMPLE_SECONDS, in its place, is what each sample of
// a step takes, as where the samples are cut by speed. Both are means: steps take up to a twentieth
// less or more, as those of real machines do, so that workers do not march in step. A third of a
// step is forward and needs the weights of one block after the other, the rest is backward and
// makes their gradients.
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
  static absl::StatusOr<std::unique_ptr<PacedModel>> Create(Layout layout,
                                                            kernels::Device* device) {
    auto model = std::unique_ptr<PacedModel>(new PacedModel(std::move(layout)));
    const int64_t elements = model->layout_.num_elements();
    const size_t bytes = elements * sizeof(float);
    ASSIGN_OR_RETURN(model->parameters_, model::DeviceMemory::Allocate(device, bytes));
    ASSIGN_OR_RETURN(model->gradients_, model::DeviceMemory::Allocate(device, bytes));
    device->Fill(model->gradients(), 0.0);
    return model;
  }

  const Layout& layout() const override { return layout_; }
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
    // A worker that is late by less was held up by the optimizer or a slow wake-up, and catches up.
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
  explicit PacedModel(Layout layout) : layout_(std::move(layout)) {
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

  const Layout layout_;
  model::DeviceMemory parameters_;
  model::DeviceMemory gradients_;
  absl::Duration step_;  // 0 means that its samples say
  absl::Duration sample_;
  std::mt19937 random_{std::random_device()()};
  // Until when its steps have kept it busy.
  absl::Time computed_ = absl::InfinitePast();
};

}  // namespace

absl::StatusOr<std::unique_ptr<model::Model>> MakePacedModel(const model::ModelConfig& config,
                                                             kernels::Device* device) {
  if (config.layout.has_value()) return PacedModel::Create(*config.layout, device);
  ASSIGN_OR_RETURN(Layout layout, BuildLayout(config.spec));
  return PacedModel::Create(std::move(layout), device);
}

}  // namespace lodestar
