// SPDX-License-Identifier: Apache-2.0

#include "kernels/factory/device_factory.h"

#include <string>

#include "gtest/gtest.h"
#include "kernels/factory/cuda_plugin.h"

namespace lodestar::factory {
namespace {

TEST(DeviceFactoryTest, MakesCpuAndOracle) {
  const auto cpu = MakeDevice("cpu", 2, nullptr);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ((*cpu)->capabilities().compute, kernels::DType::kF32);
  EXPECT_NE((*cpu)->capabilities().name.find("2 threads"), std::string::npos);
  const auto oracle = MakeDevice("oracle", 0, nullptr);
  ASSERT_TRUE(oracle.ok()) << oracle.status();
  EXPECT_EQ((*oracle)->capabilities().compute, kernels::DType::kF64);
}

// In this test there is no plugin in the executable's folder.
TEST(DeviceFactoryTest, CudaWithoutPluginIsAnErrorThatNamesIt) {
  const auto cuda = MakeDevice("cuda", 1, nullptr);
  ASSERT_FALSE(cuda.ok());
  EXPECT_EQ(cuda.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(cuda.status().message().find("liblodestar_cuda.so"), absl::string_view::npos);
}

TEST(DeviceFactoryTest, AutoFallsBackToTheCpuAndSaysWhy) {
  std::string why = "stale";
  const auto device = MakeDevice("auto", 1, &why);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->capabilities().name.rfind("cpu", 0), 0);
  if (HasCudaDriver()) {
    EXPECT_NE(why.find("liblodestar_cuda.so"), std::string::npos);
  } else {
    EXPECT_EQ(why, "this machine has no NVIDIA driver");
  }
  ASSERT_TRUE(MakeDevice("cpu", 1, &why).ok());
  EXPECT_EQ(why, "");
}

TEST(DeviceFactoryTest, RefusesUnknownKindsAndThreads) {
  const auto unknown = MakeDevice("gpu", 1, nullptr);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.status().message().find("\"gpu\""), absl::string_view::npos);
  EXPECT_EQ(MakeDevice("cpu", -1, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeDevice("cpu", 1 << 20, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DeviceFactoryTest, CudaOrdinalsAreNumbers) {
  EXPECT_EQ(MakeDevice("cuda:1", 1, nullptr).status().code(), absl::StatusCode::kNotFound);
  for (const char* kind : {"cuda:", "cuda:x", "cuda:-1", "cuda1"}) {
    EXPECT_EQ(MakeDevice(kind, 1, nullptr).status().code(), absl::StatusCode::kInvalidArgument)
        << kind;
  }
}

TEST(DeviceFactoryTest, SetsOfCardsAreListsOrAll) {
  EXPECT_EQ(CudaOrdinals("cuda:3"), std::vector<int>({3}));
  EXPECT_EQ(CudaOrdinals("cuda:2,0,11"), std::vector<int>({2, 0, 11}));
  for (const char* kind : {"cuda", "cuda:all", "cuda:1,1", "cuda:1,", "cuda:,1", "cuda:1,-2", "0,1",
                           "cuda:1;2", "cuda:99999999999"}) {
    EXPECT_TRUE(CudaOrdinals(kind).empty()) << kind;
  }
  // MakeDevice() refuses a kind that names several devices.
  EXPECT_EQ(MakeDevice("cuda:0,1", 1, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* kind : {"cuda:0,1", "cuda:all"}) {
    EXPECT_EQ(MakeDevices({.kind = kind}, nullptr).status().code(), absl::StatusCode::kNotFound)
        << kind;
  }
  const auto cpu = MakeDevices({.kind = "cpu", .threads = 1}, nullptr);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ(cpu->devices.size(), 1);
  EXPECT_EQ(cpu->group, nullptr);
  EXPECT_EQ(cpu->Name(), cpu->first().capabilities().name);
  EXPECT_EQ(MakeDevices({.kind = "gpu"}, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DeviceFactoryTest, Bf16NeedsCuda) {
  for (const char* kind : {"cpu", "auto"}) {
    const auto device = MakeDevice({.kind = kind, .compute = kernels::DType::kBf16}, nullptr);
    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument) << kind;
    EXPECT_NE(device.status().message().find("bf16 needs CUDA"), absl::string_view::npos)
        << device.status();
  }
}

TEST(DeviceFactoryTest, SizesAndSlicesFollowTheType) {
  double values[4] = {1, 2, 3, 4};
  const kernels::Buf slice = kernels::Buf{values, kernels::DType::kF64, 4}.Slice(1, 2);
  EXPECT_EQ(slice.as<double>()[0], 2.0);
  EXPECT_EQ(slice.num_elements, 2);
  EXPECT_EQ(kernels::DTypeBytes(kernels::DType::kBf16), 2);
  EXPECT_EQ(kernels::DTypeBytes(kernels::DType::kU8), 1);
}

}  // namespace
}  // namespace lodestar::factory
