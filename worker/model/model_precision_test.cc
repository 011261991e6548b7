// SPDX-License-Identifier: Apache-2.0

// Compares f32 on the CPU with f64 on the oracle, and the CUDA device on its emulated card with the
// CPU, over several optimizer steps. A real card is also tested at GPT-2's shapes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/model/device_memory.h"
#include "worker/model/model.h"
#include "worker/model/testing/synthetic_training.h"
#include "worker/model/testing/test_devices.h"

namespace lodestar::model {
namespace {

constexpr int kSteps = 10;
// f32 rounds by 6e-8. A gradient is a sum of up to a few hundred products, and ten steps add up
// their errors.
constexpr double kLossTolerance = 2e-6;
// Error of the weights, relative to the distance that training has moved them.
constexpr double kWeightTolerance = 2e-5;
// The CUDA device computes exponentials with errors of a few f32 units in the last place, and adds
// in another order.
constexpr double kCudaTolerance = 1e-4;
// bf16 rounds by up to 4e-3 wherever an activation is stored. There are some tens of such places.
// On average over a batch, the total error is below these tolerances.
constexpr double kBf16LossTolerance = 2e-2;
constexpr double kBf16WeightTolerance = 1e-1;

struct Trajectory {
  std::vector<double> losses;
  std::vector<double> start;
  std::vector<double> end;
};

Trajectory Train(const params::ModelSpec& spec, const std::string& device_kind, int threads) {
  auto device = MakeTestDevice(device_kind, threads);
  auto model = *MakeModel({spec, /*max_batch=*/4}, device.get());
  Trajectory trajectory;
  trajectory.start = RandomParameters(model->layout(), /*noise=*/0.05, /*seed=*/1);
  WriteBuf(device.get(), model->parameters(), trajectory.start);
  model->RefreshNarrowParameters();
  const kernels::Buf weights = model->parameters();
  const DeviceMemory memory = *DeviceMemory::Allocate(
      device.get(), weights.num_elements * kernels::DTypeBytes(weights.dtype));
  const kernels::Buf state{memory.data(), weights.dtype, weights.num_elements};
  device->Fill(state, 0.0);
  // AdamW is not used here, because it magnifies rounding errors of gradients that are zero in
  // theory, such as the gradient of the bias of the keys.
  const kernels::MomentumStep step{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01};
  for (int i = 0; i < kSteps; ++i) {
    const data::HostBatch batch = RandomBatch(spec, 6, /*seed=*/100 + i % 3);
    const BatchResult result = *model->TrainStep(batch, nullptr, nullptr);
    trajectory.losses.push_back(result.loss_sum / result.num_predictions);
    device->MomentumUpdate(weights, state, model->gradients(), model->narrow_parameters(), step);
  }
  trajectory.end = ReadBuf(device.get(), weights);
  return trajectory;
}

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

class ModelPrecisionTest : public testing::TestWithParam<params::ModelSpec> {};
class CudaPrecisionTest : public testing::TestWithParam<params::ModelSpec> {};

TEST_P(ModelPrecisionTest, CpuFollowsTheOracle) {
  const Trajectory oracle = Train(GetParam(), "oracle", 0);
  for (const int threads : {1, 2}) {
    const Trajectory cpu = Train(GetParam(), "cpu", threads);
    for (int i = 0; i < kSteps; ++i) {
      EXPECT_NEAR(cpu.losses[i], oracle.losses[i], kLossTolerance * oracle.losses[i])
          << "step " << i;
    }
    const double moved = Distance(oracle.end, oracle.start);
    EXPECT_GT(moved, 1e-2);
    EXPECT_LT(Distance(cpu.end, oracle.end), kWeightTolerance * moved);
  }
  EXPECT_LT(oracle.losses.back(), oracle.losses.front());
}

TEST_P(CudaPrecisionTest, CudaFollowsTheCpu) {
  const Trajectory cpu = Train(GetParam(), "cpu", /*threads=*/0);
  const double moved = Distance(cpu.end, cpu.start);
  const auto expect_near = [&](const Trajectory& cuda, double losses, double weights) {
    for (int i = 0; i < kSteps; ++i) {
      EXPECT_NEAR(cuda.losses[i], cpu.losses[i], losses * cpu.losses[i]) << "step " << i;
    }
    EXPECT_LT(Distance(cuda.end, cpu.end), weights * moved);
  };
  for (const char* device : kCudaTestDevices) {
    SCOPED_TRACE(device);
    const Trajectory cuda = Train(GetParam(), device, 1);
    if (CudaTestDeviceOf(device)->compute == kernels::DType::kF32) {
      expect_near(cuda, kCudaTolerance, kCudaTolerance);
      continue;
    }
    expect_near(cuda, kBf16LossTolerance, kBf16WeightTolerance);
    // If the results did not differ from fp32, bf16 was not used. The loss must still decrease.
    EXPECT_GT(Distance(cuda.end, cpu.end), kCudaTolerance * moved);
    EXPECT_LT(cuda.losses.back(), cuda.losses.front());
  }
}

// Includes a model with dropout, because all devices must drop the same activations.
std::vector<params::ModelSpec> AllSpecs() {
  std::vector<params::ModelSpec> specs = SmallModelSpecs();
  specs.push_back(SmallDroppingGptSpec());
  return specs;
}

std::string NameOf(const testing::TestParamInfo<params::ModelSpec>& info) {
  std::string name = info.param.name;
  std::erase_if(name, [](char letter) { return letter == '-' || letter == '.'; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(Architectures, ModelPrecisionTest, testing::ValuesIn(AllSpecs()), NameOf);
INSTANTIATE_TEST_SUITE_P(Architectures, CudaPrecisionTest, testing::ValuesIn(AllSpecs()), NameOf);
INSTANTIATE_TEST_SUITE_P(OfCards, CudaPrecisionTest, testing::ValuesIn(SpecsOfTestCards()), NameOf);

}  // namespace
}  // namespace lodestar::model
