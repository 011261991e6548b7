// SPDX-License-Identifier: Apache-2.0

// Times forward, backward and AdamW of one model on one device. Prints lines of JSON: the device,
// each step with its time and loss as soon as the step is done, the choices of the device, and a
// summary.
//
// PyTorch trains the same model on the same data in one of two ways. torch_gpt2.py writes weights
// and tokens to files, which --weights and --tokens read. Without these flags, weights and samples
// follow formulas, which torch_step.py knows, too.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoints/trained_weights.h"
#include "common/params/initial_weights.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "kernels/device.h"
#include "kernels/factory/device_factory.h"
#include "tests/bench/gpu/bench_device.h"
#include "tests/bench/step/token_batches.h"
#include "tests/numerics/formula_training.h"
#include "worker/model/device_memory.h"
#include "worker/model/model.h"
#include "worker/model/model_memory.h"

ABSL_FLAG(std::string, model, "gpt-nano",
          "name of a preset; not read if --weights is given, as that file names its model");
ABSL_FLAG(std::string, weights, "",
          "safetensors file of the first weights, with the model in its metadata; empty means "
          "weights by --seed");
ABSL_FLAG(uint64_t, seed, 0,
          "seed of the first weights, as of ps_server; 0 means weights by the formula of "
          "tests/numerics/formula_training.h");
ABSL_FLAG(std::string, tokens, "",
          "file of uint16 tokens, read from front to back and again; empty means one batch by the "
          "formula, for all steps");
ABSL_FLAG(int, batch, 12, "samples per step");
ABSL_FLAG(double, learning_rate, 1e-3, "learning rate of AdamW");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or cuda:N");
ABSL_FLAG(std::string, dtype, "fp32", "fp32 or bf16");
ABSL_FLAG(
    std::string, fusion, "measure",
    "whether matrix products are fused and cuDNN's attention is used: measure, never or always");
ABSL_FLAG(bool, repeatable, true,
          "false lets cuDNN's attention add gradients up in any order; the same as gpu_worker's");
ABSL_FLAG(std::string, tuning_file, "",
          "file of what cards have measured, read and written; the same as gpu_worker's");
ABSL_FLAG(int, threads, 1, "number of threads of the CPU");
ABSL_FLAG(int, steps, 20, "number of timed steps");
ABSL_FLAG(int, warmup, 5, "number of untimed steps before the timed ones");

namespace lodestar {
namespace {

// Maximum of the numbers of samples, threads and steps. The sum of two such numbers fits into an
// int.
constexpr int kMostCount = 1'000'000;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.95;
constexpr double kEpsilon = 1e-8;
constexpr double kWeightDecay = 0.1;

class AdamW {
 public:
  AdamW(kernels::Device* device, model::Model* model, double learning_rate,
        model::DeviceMemory memory)
      : device_(device),
        model_(model),
        learning_rate_(learning_rate),
        memory_(std::move(memory)),
        moments_{memory_.data(), kernels::DType::kF32, 2 * model->layout().num_elements()},
        ranges_(DecayRanges(model->layout())) {
    device_->Fill(moments_, 0.0);
  }

  void Step() {
    ++step_;
    for (const auto& [range, decay] : ranges_) {
      const kernels::AdamWStep step{.learning_rate = learning_rate_,
                                    .beta1 = kBeta1,
                                    .beta2 = kBeta2,
                                    .epsilon = kEpsilon,
                                    .weight_decay = decay ? kWeightDecay : 0.0,
                                    .step = step_};
      const int64_t second = model_->layout().num_elements() + range.begin;
      const kernels::Buf narrow = model_->narrow_parameters();
      device_->AdamWUpdate(model_->parameters().Slice(range.begin, range.size()),
                           moments_.Slice(range.begin, range.size()),
                           moments_.Slice(second, range.size()),
                           model_->gradients().Slice(range.begin, range.size()),
                           narrow ? narrow.Slice(range.begin, range.size()) : kernels::Buf{}, step);
    }
  }

 private:
  kernels::Device* device_;
  model::Model* model_;
  const double learning_rate_;
  model::DeviceMemory memory_;
  kernels::Buf moments_;
  const std::vector<DecayRange> ranges_;
  int64_t step_ = 0;
};

BenchDeviceFlags DeviceFlags() {
  return {.device = absl::GetFlag(FLAGS_device),
          .dtype = absl::GetFlag(FLAGS_dtype),
          .fusion = absl::GetFlag(FLAGS_fusion),
          .is_repeatable = absl::GetFlag(FLAGS_repeatable),
          .tuning_file = absl::GetFlag(FLAGS_tuning_file),
          .threads = absl::GetFlag(FLAGS_threads)};
}

// Returns null without --weights.
absl::StatusOr<std::unique_ptr<checkpoints::TrainedWeights>> OpenWeights() {
  const std::string path = absl::GetFlag(FLAGS_weights);
  if (path.empty()) return nullptr;
  return checkpoints::TrainedWeights::Open(storage::FileSystem::Real(), path);
}

absl::StatusOr<std::vector<float>> FirstWeights(const checkpoints::TrainedWeights* given,
                                                const params::ModelSpec& spec,
                                                const params::Layout& layout) {
  const params::ElementRange all{0, layout.num_elements()};
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  if (given == nullptr && seed == 0) return FormulaWeights(layout);
  std::vector<float> weights(layout.num_elements());
  if (given == nullptr) {
    params::FillInitialRange(layout, seed, all, absl::MakeSpan(weights));
    return weights;
  }
  RETURN_IF_ERROR(given->CheckHeads(spec));
  RETURN_IF_ERROR(given->CheckTensors(layout));
  RETURN_IF_ERROR(given->Read(layout, all, absl::MakeSpan(weights)));
  return weights;
}

// Returns the batches of --tokens. Without that flag, all steps get the batch of the formula.
class Batches {
 public:
  static absl::StatusOr<Batches> Make(const params::ModelSpec& spec, int64_t batch_size) {
    const std::string path = absl::GetFlag(FLAGS_tokens);
    Batches batches(batch_size);
    if (path.empty()) {
      batches.only_ = FormulaBatch(spec, batch_size);
      return batches;
    }
    const auto* const gpt = std::get_if<params::GptSpec>(&spec.architecture);
    if (gpt == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("--tokens is given, but model ", spec.name,
                                                     " takes no tokens; leave it out"));
    }
    ASSIGN_OR_RETURN(batches.tokens_, TokenBatches::Open(path, gpt->context, gpt->vocabulary));
    return batches;
  }

  data::HostBatch Of(int64_t step) const {
    return tokens_.has_value() ? tokens_->Batch(step, batch_size_) : only_;
  }

 private:
  explicit Batches(int64_t batch_size) : batch_size_(batch_size) {}

  const int64_t batch_size_;
  data::HostBatch only_;
  std::optional<TokenBatches> tokens_;
};

absl::Status CheckCounts() {
  const auto check = [](const char* flag, int value, int least, int most) {
    return least <= value && value <= most
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     absl::StrCat("--", flag, "=", value, ": allowed is ", least, " to ", most));
  };
  RETURN_IF_ERROR(check("batch", absl::GetFlag(FLAGS_batch), 1, kMostCount));
  RETURN_IF_ERROR(check("threads", absl::GetFlag(FLAGS_threads), 1, kMostCount));
  RETURN_IF_ERROR(check("warmup", absl::GetFlag(FLAGS_warmup), 0, kMostCount));
  return check("steps", absl::GetFlag(FLAGS_steps), 1, kMostCount);
}

absl::Status Run() {
  RETURN_IF_ERROR(CheckCounts());
  const BenchDeviceFlags device_flags = DeviceFlags();
  ASSIGN_OR_RETURN(const factory::DeviceOptions device_options, ReadDeviceFlags(device_flags));
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Device> device,
                   factory::MakeDevice(device_options, nullptr));
  ASSIGN_OR_RETURN(const std::unique_ptr<checkpoints::TrainedWeights> given, OpenWeights());
  ASSIGN_OR_RETURN(
      const params::ModelSpec spec,
      given != nullptr ? given->Spec() : params::ModelPreset(absl::GetFlag(FLAGS_model)));
  const int64_t batch_size = absl::GetFlag(FLAGS_batch);
  const model::ModelConfig config{spec, batch_size};
  ASSIGN_OR_RETURN(const model::ModelMemory model_memory,
                   model::EstimateModelMemory(config, device.get()));
  ASSIGN_OR_RETURN(const std::unique_ptr<model::Model> model,
                   model::MakeModel(config, device.get()));
  ASSIGN_OR_RETURN(const std::vector<float> weights,
                   FirstWeights(given.get(), spec, model->layout()));
  device->Copy(model->parameters().data, weights.data(), weights.size() * sizeof(float),
               kernels::StreamKind::kCompute);
  model->RefreshNarrowParameters();
  const size_t moment_bytes = 2 * weights.size() * sizeof(float);
  ASSIGN_OR_RETURN(model::DeviceMemory memory,
                   model::DeviceMemory::Allocate(device.get(), moment_bytes));
  AdamW optimizer(device.get(), model.get(), absl::GetFlag(FLAGS_learning_rate), std::move(memory));
  ASSIGN_OR_RETURN(const Batches batches, Batches::Make(spec, batch_size));
  const auto memory_bytes =
      static_cast<long long>(model_memory.BytesFor(batch_size) + moment_bytes);
  const char* const name = device->capabilities().name.c_str();
  std::printf("{\"device\": \"%s\", \"memory_bytes\": %lld}\n", name, memory_bytes);
  std::fflush(stdout);

  std::string times;
  double first_loss = 0.0;
  double last_loss = 0.0;
  bool has_told_loss = false;
  const int warmup = absl::GetFlag(FLAGS_warmup);
  const int steps = absl::GetFlag(FLAGS_steps);
  std::clock_t processor_start = 0;
  for (int i = 0; i < warmup + steps; ++i) {
    if (i == warmup) {
      // The device has seen all shapes by now, so it has made its choices.
      KeepTuning(device_flags, *device);
      PrintChoices(*device, device_flags.fusion);
      processor_start = std::clock();
    }
    const data::HostBatch batch = batches.Of(i);
    const auto start = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(const model::BatchResult result, model->TrainStep(batch, nullptr, nullptr));
    optimizer.Step();
    RETURN_IF_ERROR(device->Synchronize(device->Record(kernels::StreamKind::kCompute)));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    last_loss = result.loss_sum / result.num_predictions;
    if (i == 0) first_loss = last_loss;
    std::printf("{\"step\": %d, \"ms\": %.4f, \"loss\": %s}\n", i, took.count(),
                JsonNumber(last_loss).c_str());
    if (!std::isfinite(last_loss) && !std::exchange(has_told_loss, true)) {
      std::printf("{\"note\": \"the loss of step %d is not a number\"}\n", i);
    }
    std::fflush(stdout);
    if (i >= warmup) times += (times.empty() ? "" : ", ") + std::to_string(took.count());
  }
  const double processor_ms =
      1e3 * static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC / steps;
  std::printf(
      "{\"device\": \"%s\", \"memory_bytes\": %lld, \"first_loss\": %s, \"last_loss\": %s, "
      "\"processor_ms\": %.3f, \"ms\": [%s]}\n",
      name, memory_bytes, JsonNumber(first_loss).c_str(), JsonNumber(last_loss).c_str(),
      processor_ms, times.c_str());
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
