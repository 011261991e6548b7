// Times forward, backward and AdamW of one model on one device. Weights and samples follow
// plain formulas that torch_step.py knows too, so that both programs train the same model on the
// same data and their losses can be compared.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/layout.h"
#include "common/model_spec.h"
#include "common/status_macros.h"
#include "kernels/device.h"
#include "kernels/device_factory.h"
#include "tests/numerics/formula_training.h"
#include "worker/model/device_memory.h"
#include "worker/model/model.h"
#include "worker/model/model_memory.h"

ABSL_FLAG(std::string, model, "gpt-nano", "preset");
ABSL_FLAG(int, batch, 12, "samples per step");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or cuda:N");
ABSL_FLAG(std::string, dtype, "fp32", "fp32 or bf16");
ABSL_FLAG(int, threads, 1, "threads of the CPU");
ABSL_FLAG(int, steps, 20, "steps that are timed");
ABSL_FLAG(int, warmup, 5, "steps before them");

namespace lodestar {
namespace {

constexpr double kLearningRate = 1e-3;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.95;
constexpr double kEpsilon = 1e-8;
constexpr double kWeightDecay = 0.1;

class AdamW {
 public:
  AdamW(Device* device, Model* model, DeviceMemory memory)
      : device_(device),
        model_(model),
        memory_(std::move(memory)),
        moments_{memory_.data(), DType::kF32, 2 * model->layout().num_elements()},
        ranges_(DecayRanges(model->layout())) {
    device_->Fill(moments_, 0.0);
  }

  void Step() {
    ++step_;
    for (const auto& [range, decay] : ranges_) {
      const AdamWStep step{.learning_rate = kLearningRate,
                           .beta1 = kBeta1,
                           .beta2 = kBeta2,
                           .epsilon = kEpsilon,
                           .weight_decay = decay ? kWeightDecay : 0.0,
                           .step = step_};
      const int64_t second = model_->layout().num_elements() + range.begin;
      const Buf narrow = model_->narrow_parameters();
      device_->AdamWUpdate(model_->parameters().Slice(range.begin, range.size()),
                           moments_.Slice(range.begin, range.size()),
                           moments_.Slice(second, range.size()),
                           model_->gradients().Slice(range.begin, range.size()),
                           narrow ? narrow.Slice(range.begin, range.size()) : Buf{}, step);
    }
  }

 private:
  Device* device_;
  Model* model_;
  DeviceMemory memory_;
  Buf moments_;
  const std::vector<DecayRange> ranges_;
  int64_t step_ = 0;
};

absl::StatusOr<std::unique_ptr<Device>> MakeDeviceOfFlags() {
  const std::string dtype = absl::GetFlag(FLAGS_dtype);
  if (dtype != "fp32" && dtype != "bf16") {
    return absl::InvalidArgumentError("--dtype=" + dtype + ": allowed is fp32, bf16");
  }
  return MakeDevice({.kind = absl::GetFlag(FLAGS_device),
                     .compute = dtype == "bf16" ? DType::kBf16 : DType::kF32,
                     .threads = absl::GetFlag(FLAGS_threads)},
                    nullptr);
}

// Prints one line of JSON: the device, the memory that model and moments take, the loss before the
// first and at the last step, milliseconds of every timed step.
absl::Status Run() {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, MakeDeviceOfFlags());
  ASSIGN_OR_RETURN(const ModelSpec spec, ModelPreset(absl::GetFlag(FLAGS_model)));
  const int64_t batch_size = absl::GetFlag(FLAGS_batch);
  const ModelConfig config{spec, batch_size};
  ASSIGN_OR_RETURN(const ModelMemory model_memory, EstimateModelMemory(config, device.get()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, MakeModel(config, device.get()));
  const std::vector<float> weights = FormulaWeights(model->layout());
  device->Copy(model->parameters().data, weights.data(), weights.size() * sizeof(float),
               StreamKind::kCompute);
  model->RefreshNarrowParameters();
  const size_t moment_bytes = 2 * weights.size() * sizeof(float);
  ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(device.get(), moment_bytes));
  AdamW optimizer(device.get(), model.get(), std::move(memory));
  const HostBatch batch = FormulaBatch(spec, batch_size);

  std::string times;
  double first_loss = 0.0;
  double last_loss = 0.0;
  const int warmup = absl::GetFlag(FLAGS_warmup);
  const int steps = absl::GetFlag(FLAGS_steps);
  std::clock_t processor_start = 0;
  for (int i = 0; i < warmup + steps; ++i) {
    if (i == warmup) processor_start = std::clock();
    const auto start = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(const BatchResult result, model->TrainStep(batch, nullptr, nullptr));
    optimizer.Step();
    RETURN_IF_ERROR(device->Synchronize(device->Record(StreamKind::kCompute)));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    last_loss = result.loss_sum / result.num_predictions;
    if (i == 0) first_loss = last_loss;
    if (i >= warmup) times += (times.empty() ? "" : ", ") + std::to_string(took.count());
  }
  const double processor_ms =
      1e3 * static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC / steps;
  std::printf(
      "{\"device\": \"%s\", \"memory_bytes\": %lld, \"first_loss\": %.6f, \"last_loss\": %.6f, "
      "\"processor_ms\": %.3f, \"ms\": [%s]}\n",
      device->capabilities().name.c_str(),
      static_cast<long long>(model_memory.BytesFor(batch_size) + moment_bytes), first_loss,
      last_loss, processor_ms, times.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lodestar::Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
