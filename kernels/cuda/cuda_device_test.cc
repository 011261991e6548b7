// SPDX-License-Identifier: Apache-2.0

// Tests properties of the CUDA device on the emulated card that the conformance suite does not
// test: errors, memory, graphs, times, and the choice of algorithms for matrix products.
#include "kernels/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/errors.h"
#include "kernels/testing/device_test_rig.h"

namespace lodestar::cuda {
namespace {

bool Contains(absl::string_view text, absl::string_view part) {
  return text.find(part) != absl::string_view::npos;
}

class CudaDeviceTest : public testing::Test {
 protected:
  CudaDeviceTest() { Reset({}); }
  ~CudaDeviceTest() override {
    emulator::ClearStickyError();
    emulator::Configure({});
  }

  static void Reset(const emulator::Settings& settings) {
    emulator::ClearStickyError();
    emulator::Configure(settings);
  }
  static std::unique_ptr<kernels::Device> Make(const factory::CudaPluginOptions& options = {}) {
    auto device = CudaDevice::Create(options);
    EXPECT_TRUE(device.ok()) << device.status();
    return std::move(*device);
  }
  static absl::Status Wait(kernels::Device& device) {
    return device.Synchronize(device.Record(kernels::StreamKind::kCompute));
  }
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  const auto device = Make({.compute = kernels::DType::kBf16});
  EXPECT_EQ(device->capabilities().name, "emulated card");
  EXPECT_EQ(device->capabilities().compute, kernels::DType::kBf16);
  EXPECT_FALSE(device->capabilities().memory_is_host);
  EXPECT_EQ(device->capabilities().memory_bytes, emulator::settings().memory_bytes);
  const size_t free_bytes = device->FreeMemoryBytes();
  EXPECT_LE(free_bytes, device->capabilities().memory_bytes);
  void* const memory = *device->Allocate(1 << 20);
  EXPECT_EQ(device->FreeMemoryBytes(), free_bytes - (1 << 20));
  device->Release(memory);
}

TEST_F(CudaDeviceTest, RefusesWhatTheMachineDoesNotHave) {
  const absl::Status ordinal = CudaDevice::Create({.ordinal = 3}).status();
  EXPECT_EQ(ordinal.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Contains(ordinal.message(), "cuda:3")) << ordinal;
  Reset({.num_devices = 0});
  EXPECT_EQ(CudaDevice::Create({}).status().code(), absl::StatusCode::kUnavailable);
  Reset({.compute_capability = 75});
  const absl::Status bf16 = CudaDevice::Create({.compute = kernels::DType::kBf16}).status();
  EXPECT_EQ(bf16.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(bf16.message(), "7.5")) << bf16;
  EXPECT_TRUE(CudaDevice::Create({}).ok());
}

TEST_F(CudaDeviceTest, CountsTheCards) {
  Reset({.num_devices = 3});
  EXPECT_EQ(CudaDevice::Count().value_or(-1), 3);
  Reset({.num_devices = 0});
  EXPECT_EQ(CudaDevice::Count().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CudaDeviceTest, GivesEverythingBack) {
  const int64_t before = emulator::num_allocations();
  {
    const auto device = Make();
    kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
    device->SumOfSquares(rig.Output("sum", 1, kernels::DType::kF64), rig.Random(1000));
    rig.Collect();
    EXPECT_GT(emulator::num_allocations(), before);
  }
  EXPECT_EQ(emulator::num_allocations(), before);
}

TEST_F(CudaDeviceTest, SaysHowMuchMemoryIsMissingAndWhatToDo) {
  const auto device = Make();
  const absl::Status status = device->Allocate(size_t{1} << 40).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Contains(status.message(), "1099511627776 bytes")) << status;
  EXPECT_TRUE(Contains(status.message(), "are free")) << status;
  EXPECT_TRUE(Contains(status.message(), "smaller model")) << status;
  EXPECT_TRUE(Wait(*device).ok()) << "the caller was told; the device goes on";
}

TEST_F(CudaDeviceTest, TheFirstFailureSticks) {
  const auto device = Make();
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
  const kernels::Buf y = rig.Random(64);
  emulator::FailLaunchAfter(1);
  device->Fill(y, 1.0);
  ASSERT_TRUE(Wait(*device).ok());
  device->Fill(y, 2.0);
  const absl::Status first = Wait(*device);
  EXPECT_EQ(first.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(Contains(first.message(), "CUDA device 0 (emulated card)")) << first;
  EXPECT_TRUE(Contains(first.message(), "cuda_device.cc:")) << first;
  EXPECT_TRUE(Contains(first.message(), "a failure that was asked for")) << first;
  device->Fill(y, 3.0);
  EXPECT_EQ(Wait(*device), first);
}

void EmptyKernel() {}

TEST_F(CudaDeviceTest, ALaunchWhoseFailureIsNotedLeavesNoErrorForLaterCalls) {
  Errors errors("card");
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = 2048;  // invalid, a block has at most 1024 threads
  EXPECT_FALSE(errors.Check(cudaLaunchKernelEx(&config, EmptyKernel), "EmptyKernel"));
  EXPECT_EQ(errors.first().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(CudaDeviceTest, ScratchThatCannotGrowIsAnErrorOfTheOperation) {
  const auto device = Make();
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
  const kernels::Buf sum = rig.Output("sum", 1, kernels::DType::kF64);
  const kernels::Buf x = rig.Random(1000);
  emulator::FailAllocationsAfter(0);
  device->SumOfSquares(sum, x);
  const absl::Status first = Wait(*device);
  EXPECT_EQ(first.code(), absl::StatusCode::kResourceExhausted);
  emulator::FailLaunchAfter(0);
  device->Fill(x, 1.0);
  EXPECT_EQ(Wait(*device), first) << "later failures follow from it";
}

TEST_F(CudaDeviceTest, SynchronizesFromAnyThread) {
  const auto device = Make();
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
  const kernels::Buf y = rig.Output("y", 1000);
  device->Fill(y, 5.0);
  const kernels::EventId event = device->Record(kernels::StreamKind::kCompute);
  absl::Status status = absl::UnknownError("not run");
  std::thread([&] { status = device->Synchronize(event); }).join();
  EXPECT_TRUE(status.ok()) << status;
  // The device records so many more events that it reuses this event. Waiting for its id must still
  // be possible.
  for (int i = 0; i < 2000; ++i) device->Record(kernels::StreamKind::kCompute);
  EXPECT_TRUE(device->Synchronize(event).ok());
}

TEST_F(CudaDeviceTest, StreamsAreOrderedByEventsOnly) {
  for (auto streams :
       {emulator::StreamOrder::kOnlyWhatIsNeeded, emulator::StreamOrder::kOthersFirst}) {
    Reset({.streams = streams});
    const auto device = Make();
    kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
    const kernels::Buf y = rig.Output("y", 256);
    auto host = device->AllocateHost(256 * sizeof(float));
    ASSERT_TRUE(host.ok());
    device->Fill(y, 5.0);
    device->Wait(kernels::StreamKind::kDeviceToHost, device->Record(kernels::StreamKind::kCompute));
    device->Copy(*host, y.data, 256 * sizeof(float), kernels::StreamKind::kDeviceToHost);
    const kernels::EventId copied = device->Record(kernels::StreamKind::kDeviceToHost);
    device->Wait(kernels::StreamKind::kCompute, copied);
    device->Fill(y, 6.0);
    ASSERT_TRUE(device->Synchronize(copied).ok());
    EXPECT_EQ(static_cast<float*>(*host)[255], 5.0f);
    device->ReleaseHost(*host);
  }
}

TEST_F(CudaDeviceTest, CopiesNowFromAnyThreadWhateverStreamsWaitFor) {
  constexpr size_t kPage = 4096;
  constexpr int64_t kElements = kPage / sizeof(float);
  alignas(kPage) static float memory[2 * kElements];
  const auto device = Make();
  const kernels::Buf y = {*device->Allocate(kPage), kernels::DType::kF32, kElements};
  const kernels::Buf z = {*device->Allocate(kPage), kernels::DType::kF32, kElements};
  device->Fill(y, 5.0);
  ASSERT_TRUE(Wait(*device).ok());
  device->Fill(z, 6.0);
  device->Wait(kernels::StreamKind::kDeviceToHost, device->Record(kernels::StreamKind::kCompute));
  ASSERT_TRUE(device->RegisterHostMemory(memory, sizeof(memory)).ok());
  const int64_t pageable = emulator::num_pageable_copies();
  const int64_t copied = emulator::registered_bytes_copied();
  int num_meanwhile = 0;
  std::thread([&] {
    const auto meanwhile = [&num_meanwhile] { ++num_meanwhile; };
    EXPECT_TRUE(
        device->CopyNow(memory, y.data, kPage, kernels::StreamKind::kDeviceToHost, meanwhile).ok());
    EXPECT_EQ(memory[kElements - 1], 5.0f);
    memory[0] = 7.0f;
    EXPECT_TRUE(
        device
            ->CopyNow(y.data, memory, sizeof(float), kernels::StreamKind::kHostToDevice, meanwhile)
            .ok());
  }).join();
  EXPECT_EQ(num_meanwhile, 2);
  EXPECT_EQ(y.as<float>()[0], 7.0f);
  EXPECT_EQ(y.as<float>()[1], 5.0f);
  EXPECT_TRUE(std::isnan(z.as<float>()[0])) << "nobody has waited for what is queued";
  EXPECT_EQ(emulator::num_pageable_copies(), pageable);
  EXPECT_EQ(emulator::registered_bytes_copied() - copied,
            static_cast<int64_t>(kPage + sizeof(float)));
  device->UnregisterHostMemory(memory);
  EXPECT_TRUE(Wait(*device).ok());
  device->Release(y.data);
  device->Release(z.data);
}

TEST_F(CudaDeviceTest, HostMemoryThatIsRefusedIsNoFailureOfTheDevice) {
  constexpr size_t kPage = 4096;
  alignas(kPage) static char memory[2 * kPage];
  Reset({.registrable_bytes = kPage});
  const auto device = Make();
  const absl::Status refused = device->RegisterHostMemory(memory, sizeof(memory));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Contains(refused.message(), "8192 bytes")) << refused;
  EXPECT_TRUE(Contains(refused.message(), "cudaHostRegister")) << refused;
  EXPECT_TRUE(Contains(refused.message(), "ulimit -l")) << refused;
  EXPECT_TRUE(Wait(*device).ok());
}

TEST_F(CudaDeviceTest, TimesWhatRunsBetweenTwoEvents) {
  const auto device = Make();
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
  const kernels::Buf y = rig.Random(64);
  const kernels::EventId from = device->RecordTimed(kernels::StreamKind::kCompute);
  for (int i = 0; i < 3; ++i) device->Fill(y, 1.0);
  const kernels::EventId to = device->RecordTimed(kernels::StreamKind::kCompute);
  const auto seconds = device->SecondsBetween(from, to);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_NEAR(*seconds, 3e-6, 1e-9);  // one microsecond per operation
  for (int i = 0; i < 2000; ++i) device->RecordTimed(kernels::StreamKind::kCompute);
  EXPECT_EQ(device->SecondsBetween(from, to).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(CudaDeviceTest, GraphsRunWhatWasRecorded) {
  const auto device = Make();
  ASSERT_TRUE(device->supports_graphs());
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
  const kernels::Buf c = rig.InOut("c", 8 * 8);
  const kernels::Buf a = rig.Random(8 * 8);
  device->Fill(c, 0.0);
  const auto step = [&] {
    device->MatMul({.m = 8, .n = 8, .k = 8}, c, a, a, kernels::Accumulate::kAdd);
  };
  device->BeginGraph();
  step();
  const auto graph = device->EndGraph();
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (int i = 0; i < 2; ++i) device->LaunchGraph(*graph);
  const std::vector<double> twice = rig.Collect().at("c");
  device->Fill(c, 0.0);
  for (int i = 0; i < 2; ++i) step();
  EXPECT_EQ(rig.Collect().at("c"), twice);
}

TEST_F(CudaDeviceTest, AGraphWithoutWarmUpSaysSo) {
  const auto device = Make();
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
  const kernels::Buf sum = rig.Output("sum", 1, kernels::DType::kF64);
  const kernels::Buf x = rig.Random(1000);
  device->BeginGraph();
  device->SumOfSquares(sum, x);
  const auto graph = device->EndGraph();
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Contains(graph.status().message(), "ran once")) << graph.status();
}

// Runs a layer forward and backward. Returns its outputs.
kernels::Outputs RunLayer(kernels::Device& device, int times) {
  kernels::DeviceTestRig rig(&device, device.capabilities().compute);
  const int64_t rows = 16, in = 24, out = 32;
  const kernels::Buf x = rig.Random(rows * in);
  const kernels::Buf w = rig.Random(out * in);
  const kernels::Buf bias = rig.Random(out);
  const kernels::Buf y = rig.Output("y", rows * out);
  const kernels::Buf pre = rig.Output("pre", rows * out);
  const kernels::Buf dw = rig.Output("dw", out * in, kernels::DType::kF32);
  const kernels::Buf db = rig.Output("db", out, kernels::DType::kF32);
  const kernels::Buf dy = rig.InOut("dy", rows * out);
  for (int i = 0; i < times; ++i) {
    device.LinearForward(y, pre, x, w, bias, rows, in, out, kernels::Activation::kGeluTanh,
                         kernels::WeightOrder::kOutIn);
    device.LinearBackward({}, dw, db, dy, {}, x, w, rows, in, out, kernels::Activation::kNone,
                          kernels::WeightOrder::kOutIn, kernels::Accumulate::kSet);
  }
  return rig.Collect();
}

TEST_F(CudaDeviceTest, AsksForAnAlgorithmOncePerShape) {
  const auto device = Make({.fusion = factory::FusionPolicy::kNever});
  RunLayer(*device, 1);
  const int64_t asked = emulator::num_heuristics();
  RunLayer(*device, 3);
  EXPECT_EQ(emulator::num_heuristics(), asked);
}

TEST_F(CudaDeviceTest, MeasuresWhetherToFuseOncePerShape) {
  Reset({.epilogue_microseconds = 1.5});  // separate kernels take 2 us forward, 3 us backward
  const auto device = Make({.compute = kernels::DType::kBf16});
  RunLayer(*device, 1);
  const std::string choices = device->DescribeChoices();
  EXPECT_TRUE(Contains(choices, "forward 16 x 24 x 32, bias, GELU kept: fused (fused 1.5 us"))
      << choices;
  EXPECT_TRUE(Contains(choices, "backward 16 x 24 x 32, bias: fused")) << choices;
  const int64_t before = emulator::num_launches();
  RunLayer(*device, 1);
  EXPECT_EQ(emulator::num_launches(), before) << "all of the layer is cuBLASLt's";

  Reset({.epilogue_microseconds = 50.0});
  const auto slow = Make({.compute = kernels::DType::kBf16});
  RunLayer(*slow, 1);
  EXPECT_TRUE(Contains(slow->DescribeChoices(), "GELU kept: separate")) << slow->DescribeChoices();
}

// Runs the backward pass through the GELU between two layers. Returns its outputs.
kernels::Outputs RunBackwardInput(kernels::Device& device, kernels::Accumulate weights, int times) {
  kernels::DeviceTestRig rig(&device, device.capabilities().compute);
  const int64_t rows = 16, in = 32, out = 24;
  const kernels::Buf dx = rig.Output("dx", rows * in);
  const kernels::Buf db = rig.InOut("db", in, kernels::DType::kF32);
  const kernels::Buf dy = rig.Random(rows * out);
  const kernels::Buf pre = rig.Random(rows * in);
  const kernels::Buf w = rig.Random(out * in);
  for (int i = 0; i < times; ++i) {
    device.LinearBackwardInput(dx, db, dy, pre, w, rows, in, out, kernels::Activation::kGeluTanh,
                               kernels::WeightOrder::kInOut, weights);
  }
  return rig.Collect();
}

// Allows errors of a few bf16 roundings of the largest value, because the fused call does not round
// the gradient before it multiplies by the GELU's slope.
void ExpectNear(const kernels::Outputs& got, const kernels::Outputs& want) {
  for (const auto& [name, values] : want) {
    double largest = 0.0;
    for (const double value : values) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(got.at(name)[i], values[i], 0x1p-6 * largest) << name << "[" << i << "]";
    }
  }
}

TEST_F(CudaDeviceTest, MeasuresWhetherToFuseTheGradientOfAGelu) {
  const auto never =
      Make({.compute = kernels::DType::kBf16, .fusion = factory::FusionPolicy::kNever});
  const kernels::Outputs want = RunBackwardInput(*never, kernels::Accumulate::kSet, 1);
  for (const bool is_fast : {true, false}) {
    // The measured times of "fused" and "separate" both include the kernel that computes partial
    // sums, which takes 1 us. They do not include the kernel that adds these sums up.
    Reset({.epilogue_microseconds = is_fast ? 0.5 : 1.5});
    const auto device = Make({.compute = kernels::DType::kBf16});
    const kernels::Outputs got = RunBackwardInput(*device, kernels::Accumulate::kSet, 1);
    EXPECT_TRUE(Contains(
        device->DescribeChoices(),
        is_fast ? "backward 16 x 32 x 24, GELU, bias, in x out: fused (fused 1.5 us, separate 2.0"
                : "backward 16 x 32 x 24, GELU, bias, in x out: separate (fused 2.5 us, separate"))
        << device->DescribeChoices();
    ExpectNear(got, want);
    EXPECT_EQ(got == want, !is_fast) << "the product is not rounded before the GELU's slope";
  }
}

// An operation runs several times while it is measured. Even then, its result must be added only
// once, and must be the same in each call.
TEST_F(CudaDeviceTest, WhatIsMeasuredAddsOnce) {
  const auto always =
      Make({.compute = kernels::DType::kBf16, .fusion = factory::FusionPolicy::kAlways});
  const kernels::Outputs want = RunBackwardInput(*always, kernels::Accumulate::kAdd, 3);
  Reset({.epilogue_microseconds = 0.5});
  const auto device = Make({.compute = kernels::DType::kBf16});
  EXPECT_EQ(RunBackwardInput(*device, kernels::Accumulate::kAdd, 3), want);
  EXPECT_TRUE(Contains(device->DescribeChoices(), ": fused")) << device->DescribeChoices();
}

TEST_F(CudaDeviceTest, WithoutTheEpilogueTheGradientOfAGeluRunsSeparately) {
  const auto never =
      Make({.compute = kernels::DType::kBf16, .fusion = factory::FusionPolicy::kNever});
  const kernels::Outputs want = RunBackwardInput(*never, kernels::Accumulate::kSet, 1);
  for (const auto epilogues : {emulator::Epilogues::kUnknown, emulator::Epilogues::kRefused}) {
    Reset({.epilogues = epilogues});
    const auto device =
        Make({.compute = kernels::DType::kBf16, .fusion = factory::FusionPolicy::kAlways});
    EXPECT_EQ(RunBackwardInput(*device, kernels::Accumulate::kSet, 2), want);
    EXPECT_TRUE(Wait(*device).ok()) << Wait(*device);
  }
  Reset({});
  const auto fp32 = Make({.fusion = factory::FusionPolicy::kAlways});
  const auto fp32_never = Make({.fusion = factory::FusionPolicy::kNever});
  EXPECT_EQ(RunBackwardInput(*fp32, kernels::Accumulate::kSet, 1),
            RunBackwardInput(*fp32_never, kernels::Accumulate::kSet, 1));
}

TEST_F(CudaDeviceTest, WithoutEpiloguesNothingIsFused) {
  Reset({.epilogues = emulator::Epilogues::kUnknown});
  const auto device = Make();
  const kernels::Outputs separate = RunLayer(*device, 1);
  EXPECT_EQ(device->DescribeChoices(), "");
  Reset({});
  const auto fusing = Make({.fusion = factory::FusionPolicy::kAlways});
  const kernels::Outputs fused = RunLayer(*fusing, 1);
  for (const auto& [name, values] : separate) {
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(fused.at(name)[i], values[i], 1e-5) << name << "[" << i << "]";
    }
  }
}

// The tanh of the emulated epilogue is only approximate. So y would change if fp32 used a fused
// GELU.
TEST_F(CudaDeviceTest, Fp32HasNoGeluOfAnEpilogue) {
  const auto separate = Make({.fusion = factory::FusionPolicy::kNever});
  const kernels::Outputs want = RunLayer(*separate, 1);
  for (const factory::FusionPolicy fusion :
       {factory::FusionPolicy::kMeasure, factory::FusionPolicy::kAlways}) {
    const auto device = Make({.fusion = fusion});
    EXPECT_EQ(RunLayer(*device, 1).at("y"), want.at("y"));
    EXPECT_FALSE(Contains(device->DescribeChoices(), "GELU")) << device->DescribeChoices();
  }
}

TEST_F(CudaDeviceTest, WhatCublasRefusesToFuseRunsSeparately) {
  const auto never =
      Make({.compute = kernels::DType::kBf16, .fusion = factory::FusionPolicy::kNever});
  const kernels::Outputs want = RunLayer(*never, 1);
  for (const factory::FusionPolicy fusion :
       {factory::FusionPolicy::kMeasure, factory::FusionPolicy::kAlways}) {
    Reset({.epilogues = emulator::Epilogues::kRefused});
    const auto device = Make({.compute = kernels::DType::kBf16, .fusion = fusion});
    EXPECT_EQ(RunLayer(*device, 2), want);
    EXPECT_TRUE(Wait(*device).ok()) << Wait(*device);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    for (const char* operation :
         {"forward 16 x 24 x 32, bias, GELU kept", "backward 16 x 24 x 32, bias"}) {
      EXPECT_TRUE(Contains(device->DescribeChoices(),
                           std::string(operation) + ": separate (cuBLASLt refuses to fuse it: "
                                                    "CUBLAS_STATUS_NOT_SUPPORTED)"))
          << device->DescribeChoices();
    }
  }
}

TEST_F(CudaDeviceTest, WhatWasFusedBeforeMayBeRefused) {
  const auto device =
      Make({.compute = kernels::DType::kBf16, .fusion = factory::FusionPolicy::kAlways});
  RunLayer(*device, 1);
  EXPECT_TRUE(Contains(device->DescribeChoices(), ": fused (--fusion=always)"))
      << device->DescribeChoices();
  emulator::Configure({.epilogues = emulator::Epilogues::kRefused});
  const kernels::Outputs replaced = RunLayer(*device, 2);
  EXPECT_TRUE(Contains(device->DescribeChoices(), "refuses")) << device->DescribeChoices();
  const auto never =
      Make({.compute = kernels::DType::kBf16, .fusion = factory::FusionPolicy::kNever});
  EXPECT_EQ(replaced, RunLayer(*never, 1));
}

TEST_F(CudaDeviceTest, AFusedCallThatBreaksTheCardIsNamed) {
  for (const factory::FusionPolicy fusion :
       {factory::FusionPolicy::kMeasure, factory::FusionPolicy::kAlways}) {
    Reset({.epilogues = emulator::Epilogues::kFatal});
    const auto device = Make({.fusion = fusion});
    kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
    device->LinearForward(rig.Output("y", 16 * 32), {}, rig.Random(16 * 24), rig.Random(32 * 24),
                          rig.Random(32), 16, 24, 32, kernels::Activation::kRelu,
                          kernels::WeightOrder::kOutIn);
    const absl::Status status = Wait(*device);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    for (const char* part : {"CUDA device 0 (emulated card): forward 16 x 24 x 32, bias, ReLU",
                             "has broken the card: cudaErrorIllegalAddress", "--fusion=never"}) {
      EXPECT_TRUE(Contains(status.message(), part)) << status;
    }
  }
}

// Fixture in which each product has several algorithms, whose results differ in the last bits.
class CudaTuningTest : public CudaDeviceTest {
 protected:
  // The second algorithm in the heuristic's list is the fastest.
  static emulator::Settings SecondIsFastest() { return {.algorithm_microseconds = {3, 1, 2}}; }
  static emulator::Settings ThirdIsFastest() { return {.algorithm_microseconds = {3, 2, 1}}; }

  static std::unique_ptr<kernels::Device> MakeTuned(
      const emulator::Settings& settings, const std::string& text = "",
      factory::FusionPolicy fusion = factory::FusionPolicy::kMeasure) {
    Reset(settings);
    return Make({.fusion = fusion, .tuning = text});
  }
  // Returns the outputs of a device on which algorithm 0, 1 or 2 of the heuristic's list is the
  // fastest and is chosen.
  static kernels::Outputs OfAlgorithm(const std::function<kernels::Outputs(kernels::Device&)>& run,
                                      int algorithm) {
    emulator::Settings settings = SecondIsFastest();
    for (double& microseconds : settings.algorithm_microseconds) microseconds = 10.0;
    settings.algorithm_microseconds[algorithm] = 1.0;
    const auto device = MakeTuned(settings);
    return run(*device);
  }
};

// Runs a product that sets c, and two that add to c.
kernels::Outputs RunProducts(kernels::Device& device) {
  kernels::DeviceTestRig rig(&device, device.capabilities().compute);
  const kernels::MatMulShape shape{.m = 9, .n = 16, .k = 40};
  const kernels::Buf set = rig.Output("set", 9 * 16);
  const kernels::Buf added = rig.InOut("added", 9 * 16);
  const kernels::Buf a = rig.Random(9 * 40);
  const kernels::Buf b = rig.Random(40 * 16);
  device.MatMul(shape, set, a, b, kernels::Accumulate::kSet);
  for (int i = 0; i < 2; ++i) device.MatMul(shape, added, a, b, kernels::Accumulate::kAdd);
  return rig.Collect();
}

// Runs a product of two batches, which are added to c. Each row of c is longer than a row of the
// product. No other product of these tests has this shape.
kernels::Outputs RunAddingBatches(kernels::Device& device) {
  kernels::DeviceTestRig rig(&device, device.capabilities().compute);
  const int64_t ldc = 24;
  const kernels::Buf c = rig.InOut("c", 2 * 5 * ldc);
  const kernels::MatMulShape shape{.m = 5,
                                   .n = 16,
                                   .k = 40,
                                   .batch = 2,
                                   .stride_a = 5 * 40,
                                   .stride_b = 40 * 16,
                                   .stride_c = 5 * ldc,
                                   .ldc = ldc};
  device.MatMul(shape, c, rig.Random(2 * 5 * 40), rig.Random(2 * 40 * 16),
                kernels::Accumulate::kAdd);
  return rig.Collect();
}

TEST_F(CudaTuningTest, AlgorithmsDifferInLastBits) {
  for (const auto& run : {RunProducts, RunAddingBatches}) {
    EXPECT_NE(OfAlgorithm(run, 0), OfAlgorithm(run, 1));
    EXPECT_NE(OfAlgorithm(run, 1), OfAlgorithm(run, 2));
  }
}

TEST_F(CudaTuningTest, TakesTheFastestAndSpoilsNothing) {
  for (const auto& run : {RunProducts, RunAddingBatches}) {
    const kernels::Outputs want = OfAlgorithm(run, 1);
    const auto device = MakeTuned(SecondIsFastest());
    const int64_t allocations = emulator::num_allocations();
    EXPECT_EQ(run(*device), want);
    EXPECT_EQ(emulator::num_allocations(), allocations);
    EXPECT_TRUE(Contains(device->DescribeChoices(), "candidate 2 of 3: 1.0 us, the first: 3.0 us"))
        << device->DescribeChoices();
    EXPECT_EQ(run(*device), want);
  }
}

// The heuristic names 32 algorithms. Most are so slow that timing them once is enough.
TEST_F(CudaTuningTest, OnlyWhatComesNearTheFastestIsTimedLonger) {
  emulator::Settings settings = {.algorithm_microseconds = {3, 1.25, 1}};
  settings.algorithm_microseconds.resize(40, 10.0);
  settings.algorithm_microseconds[33] = 0.5;  // index above 31: not asked for
  const auto device = MakeTuned(settings);
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
  const int64_t products = emulator::num_products();
  device->MatMul({.m = 9, .n = 16, .k = 40}, rig.Output("c", 9 * 16), rig.Random(9 * 40),
                 rig.Random(40 * 16), kernels::Accumulate::kSet);
  EXPECT_TRUE(Contains(device->DescribeChoices(), "candidate 3 of 32: 1.0 us, the first: 3.0 us"))
      << device->DescribeChoices();
  EXPECT_EQ(emulator::num_products() - products, 32 * 2 + 3 * 3 * 4 + 1);
}

// If fusion is fixed, two runs must give equal bits, so nothing may be measured.
TEST_F(CudaTuningTest, NothingIsMeasuredWhereFusionIsPinned) {
  const kernels::Outputs first = OfAlgorithm(RunProducts, 0);
  const std::string text = [] {
    const auto device = MakeTuned(SecondIsFastest());
    RunProducts(*device);
    return device->MergeTuning("");
  }();
  for (const factory::FusionPolicy fusion :
       {factory::FusionPolicy::kNever, factory::FusionPolicy::kAlways}) {
    for (const std::string& kept : {std::string(), text}) {
      const auto device = MakeTuned(SecondIsFastest(), kept, fusion);
      const int64_t products = emulator::num_products();
      EXPECT_EQ(RunProducts(*device), first);
      EXPECT_EQ(emulator::num_products() - products, 3);
    }
  }
}

TEST_F(CudaTuningTest, WithoutATextTheHeuristicsFirstIsTaken) {
  const kernels::Outputs want = OfAlgorithm(RunProducts, 0);
  Reset(SecondIsFastest());
  const auto device = Make({.fusion = factory::FusionPolicy::kNever});
  const int64_t before = emulator::num_products();
  EXPECT_EQ(RunProducts(*device), want);
  EXPECT_EQ(emulator::num_products(), before + 3);
  EXPECT_EQ(device->MergeTuning(""), "");
  EXPECT_EQ(device->DescribeChoices(), "");
}

TEST_F(CudaTuningTest, ALowerGuessMustBeFasterByMoreThanNoise) {
  const auto device = MakeTuned({.algorithm_microseconds = {1.0, 0.995}});
  RunProducts(*device);
  EXPECT_TRUE(Contains(device->DescribeChoices(), "candidate 1 of 2")) << device->DescribeChoices();
}

TEST_F(CudaTuningTest, WithTheTextARunIsRepeatedWithoutMeasuring) {
  const auto first = MakeTuned(SecondIsFastest());
  const kernels::Outputs want = RunProducts(*first);
  const std::string text = first->MergeTuning("");
  const auto second = MakeTuned(ThirdIsFastest(), text);
  const int64_t heuristics = emulator::num_heuristics();
  const int64_t products = emulator::num_products();
  EXPECT_EQ(RunProducts(*second), want);
  EXPECT_EQ(emulator::num_products(), products + 3);
  EXPECT_EQ(emulator::num_heuristics(), heuristics);
  EXPECT_EQ(second->MergeTuning(text), text);
  EXPECT_EQ(second->DescribeTuning(), "");
  const auto unaware = MakeTuned(ThirdIsFastest());
  EXPECT_NE(RunProducts(*unaware), want);
}

TEST_F(CudaTuningTest, WhatIsFusedIsRepeatedToo) {
  emulator::Settings fast = SecondIsFastest();
  fast.epilogue_microseconds = 1.25;
  emulator::Settings slow = ThirdIsFastest();
  slow.epilogue_microseconds = 50.0;
  for (const emulator::Settings& at_first : {fast, slow}) {
    const auto first = MakeTuned(at_first, "", factory::FusionPolicy::kMeasure);
    const kernels::Outputs want = RunLayer(*first, 1);
    const bool is_fused = at_first.epilogue_microseconds < 2.0;
    const std::string text = first->MergeTuning("");
    EXPECT_TRUE(Contains(text, is_fused ? "fusion fp32 backward 16 x 24 x 32, bias = fused | "
                                        : "fusion fp32 backward 16 x 24 x 32, bias = separate | "))
        << text;
    const auto second = MakeTuned(is_fused ? slow : fast, text, factory::FusionPolicy::kMeasure);
    const int64_t products = emulator::num_products();
    EXPECT_EQ(RunLayer(*second, 1), want);
    EXPECT_EQ(emulator::num_products(), products + 2);
    EXPECT_TRUE(Contains(second->DescribeChoices(), "as an earlier run has chosen"))
        << second->DescribeChoices();
    EXPECT_EQ(second->MergeTuning(text), text);
    // One tuning text may have choices for both dtypes.
    Reset(slow);
    const auto bf16 = Make({.compute = kernels::DType::kBf16, .tuning = text});
    RunLayer(*bf16, 1);
    EXPECT_TRUE(Contains(bf16->DescribeChoices(), "bias: separate (fused")) << text;
  }
}

TEST_F(CudaTuningTest, WhatAnEarlierRunHasFusedMayBeRefused) {
  const auto first = MakeTuned({.epilogue_microseconds = 0.5}, "", factory::FusionPolicy::kMeasure);
  RunLayer(*first, 1);
  const std::string text = first->MergeTuning("");
  const auto second = MakeTuned({.epilogues = emulator::Epilogues::kRefused}, text,
                                factory::FusionPolicy::kMeasure);
  RunLayer(*second, 1);
  EXPECT_TRUE(Wait(*second).ok()) << Wait(*second);
  EXPECT_TRUE(Contains(second->DescribeTuning(), "what was kept is not used: cuBLASLt refuses"))
      << second->DescribeTuning();
  EXPECT_TRUE(Contains(second->MergeTuning(text), "bias = separate | cuBLASLt refuses"))
      << second->MergeTuning(text);
}

TEST_F(CudaTuningTest, ATextOfAnotherCardIsNotUsed) {
  const auto first = MakeTuned(SecondIsFastest());
  RunProducts(*first);
  const std::string text = first->MergeTuning("");
  emulator::Settings ampere = ThirdIsFastest();
  ampere.compute_capability = 80;
  const auto second = MakeTuned(ampere, text);
  EXPECT_TRUE(Contains(second->DescribeTuning(),
                       "it has 'compute capability: 9.0', and here is 'compute capability: 8.0'"))
      << second->DescribeTuning();
  RunProducts(*second);
  EXPECT_TRUE(Contains(second->DescribeChoices(), "candidate 3 of 3")) << second->DescribeChoices();
  EXPECT_TRUE(Contains(second->MergeTuning(text), "compute capability: 8.0"));
}

TEST_F(CudaTuningTest, WhatCublasDoesNotTakeAnyMoreIsMeasuredAgain) {
  const kernels::Outputs want = OfAlgorithm(RunProducts, 2);
  const auto first = MakeTuned(SecondIsFastest());
  RunProducts(*first);
  const std::string text = first->MergeTuning("");
  emulator::Settings without_second = SecondIsFastest();
  without_second.refused_algorithm = 1;
  const auto second = MakeTuned(without_second, text);
  EXPECT_EQ(RunProducts(*second), want);
  EXPECT_TRUE(Wait(*second).ok()) << Wait(*second);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_TRUE(Contains(second->DescribeTuning(), "CUBLAS_STATUS_NOT_SUPPORTED"))
      << second->DescribeTuning();
  const auto third = MakeTuned(without_second, second->MergeTuning(text));
  RunProducts(*third);
  EXPECT_EQ(third->DescribeTuning(), "");
  EXPECT_EQ(third->DescribeChoices(), "") << "nothing is left to be measured";
}

// A product that is being recorded is not measured. If it was measured before, it uses the
// algorithm that was chosen then.
TEST_F(CudaTuningTest, NothingIsMeasuredWhileAGraphIsRecorded) {
  const kernels::Outputs want_first = OfAlgorithm(RunProducts, 0);
  const kernels::Outputs want_second = OfAlgorithm(RunProducts, 1);
  const auto device = MakeTuned(SecondIsFastest());
  const auto run_as_graph = [&] {
    kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
    const kernels::MatMulShape shape{.m = 9, .n = 16, .k = 40};
    const kernels::Buf set = rig.Output("set", 9 * 16);
    rig.InOut("added", 9 * 16);
    const kernels::Buf a = rig.Random(9 * 40);
    const kernels::Buf b = rig.Random(40 * 16);
    const int64_t products = emulator::num_products();
    device->BeginGraph();
    device->MatMul(shape, set, a, b, kernels::Accumulate::kSet);
    const auto graph = device->EndGraph();
    EXPECT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(emulator::num_products(), products + 1);
    device->LaunchGraph(*graph);
    return rig.Collect().at("set");
  };
  EXPECT_EQ(run_as_graph(), want_first.at("set"));
  EXPECT_EQ(device->DescribeChoices(), "");
  EXPECT_EQ(RunProducts(*device), want_second) << "measured with the first call that may wait";
  EXPECT_EQ(run_as_graph(), want_second.at("set"));
}

TEST_F(CudaTuningTest, WithoutMemoryForASecondSumTheFirstGuessIsKept) {
  const auto device = MakeTuned(SecondIsFastest());
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
  const kernels::Buf c = rig.InOut("c", 64);
  const kernels::Buf a = rig.Random(64);
  emulator::FailAllocationsAfter(0);
  device->MatMul({.m = 8, .n = 8, .k = 8}, c, a, a, kernels::Accumulate::kAdd);
  EXPECT_TRUE(Wait(*device).ok()) << Wait(*device);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_TRUE(Contains(device->MergeTuning(""), "the heuristic's first: there was no memory"))
      << device->MergeTuning("");
}

TEST_F(CudaTuningTest, AFusedCallThatBreaksTheCardIsNamedAlsoWhenItIsTimed) {
  emulator::Settings fatal = SecondIsFastest();
  fatal.epilogues = emulator::Epilogues::kFatal;
  const auto device = MakeTuned(fatal, "", factory::FusionPolicy::kMeasure);
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
  device->LinearForward(rig.Output("y", 16 * 32), {}, rig.Random(16 * 24), rig.Random(32 * 24),
                        rig.Random(32), 16, 24, 32, kernels::Activation::kRelu,
                        kernels::WeightOrder::kOutIn);
  const absl::Status status = Wait(*device);
  EXPECT_TRUE(Contains(status.message(), "forward 16 x 24 x 32, bias, ReLU")) << status;
  EXPECT_TRUE(Contains(status.message(), "--fusion=never")) << status;
  EXPECT_FALSE(Contains(device->MergeTuning(""), " = ")) << device->MergeTuning("");
}

TEST_F(CudaTuningTest, ACardThatFailedBeforeIsNotTheFaultOfWhatIsTimed) {
  const auto device = MakeTuned(SecondIsFastest());
  kernels::DeviceTestRig rig(device.get(), kernels::DType::kF32);
  const kernels::Buf y = rig.Random(64);
  emulator::FailLaunchAfter(0);
  device->Fill(y, 1.0);
  device->MatMul({.m = 8, .n = 8, .k = 8}, y, y.Slice(0, 64), y, kernels::Accumulate::kAdd);
  const absl::Status status = Wait(*device);
  EXPECT_TRUE(Contains(status.message(), "a failure that was asked for")) << status;
  EXPECT_FALSE(Contains(status.message(), "timing")) << status;
  EXPECT_FALSE(Contains(device->MergeTuning(""), " = ")) << device->MergeTuning("");
}

}  // namespace
}  // namespace lodestar::cuda
