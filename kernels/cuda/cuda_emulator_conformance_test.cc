// SPDX-License-Identifier: Apache-2.0

// Runs the conformance suite for the whole CUDA device on the emulated card, against the fp64
// oracle. There are cases for fp32 and bf16, for both orders of the threads of a block, with and
// without cuBLASLt's epilogues, and with timed algorithms.
//
// In bf16 the suite allows errors of kMostBf16Units roundings of an output's largest value. This is
// less than twice (backward: three times) the error of a naive bf16 implementation, which rounds
// each product and each sum. If an operation sums up many terms, the naive error is far more than
// two roundings. If an operation has no sums, it rounds only once or twice.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/testing/device_conformance.h"

namespace lodestar::cuda {
namespace {

using kernels::DeviceConformanceTest;

kernels::DeviceCase CaseOf(const std::string& name, const factory::CudaPluginOptions& options,
                           const emulator::Settings& settings) {
  return {name, [options, settings] { return cuda::MakeEmulatedDevice(options, settings); }};
}

std::vector<kernels::DeviceCase> Cases() {
  const emulator::Settings forward;
  emulator::Settings reversed;
  reversed.threads = emulator::ThreadOrder::kReversed;
  reversed.streams = emulator::StreamOrder::kOthersFirst;
  emulator::Settings turing = reversed;
  turing.compute_capability = 75;
  turing.epilogues = emulator::Epilogues::kUnknown;
  turing.algorithm_microseconds = {3.0, 1.0, 2.0};
  return {
      CaseOf("F32", {.fusion = factory::FusionPolicy::kAlways}, forward),
      CaseOf("F32TuringTuned", {.fusion = factory::FusionPolicy::kMeasure, .tuning = ""}, turing),
      CaseOf("Bf16", {.compute = kernels::DType::kBf16, .fusion = factory::FusionPolicy::kNever},
             forward),
      CaseOf("Bf16Reversed",
             {.compute = kernels::DType::kBf16, .fusion = factory::FusionPolicy::kAlways},
             reversed),
  };
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformanceTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lodestar::cuda
