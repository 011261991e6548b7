// SPDX-License-Identifier: Apache-2.0

// Tests without a card whether cuDNN accepts the graphs. cuDNN can make plans for a card if it gets
// only the properties of the card. A plan does not prove that the graph computes attention, because
// cuDNN also has kernels for other masks. Only tests/gpu compares values, on a card.
#include <gtest/gtest.h>

#ifdef LODESTAR_HAS_CUDNN
#include <dlfcn.h>

#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cudnn_api.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cudnn_graph.h"

namespace lodestar::cuda {
namespace {

// The newest version of cuDNN with which these tests, and the properties of cards below, were
// tried.
constexpr size_t kNewestVersion = 92801;

std::string Properties(int version, int multiprocessors, int shared_bytes_per_block) {
  return absl::StrCat(
      R"({"cudaDeviceId": 0, "driverVer": 13000, "deviceName": "a card", "regsPerBlock": 65536,
          "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
          "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024,
          "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
          "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,
          "totalGlobalMem": 85899345920, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000,
          "l2CacheSize": 52428800, "oversizedSharedMemoryPerBlock": 0, "memoryBusWidth": 5120,
          "smCountOrigin": 0, "deviceVer": )",
      version, ", \"multiProcessorCount\": ", multiprocessors,
      ", \"maxSharedMemoryPerBlockOptin\": ", shared_bytes_per_block, "}");
}

class CudnnAttentionTest : public testing::Test {
 protected:
  void SetUp() override {
    // The stand-in must be loaded before cuDNN. It has the same name as the driver, so cuDNN uses
    // it as the driver.
    ASSERT_NE(dlopen(LODESTAR_CUDA_DRIVER_STAND_IN, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    auto api = LoadCudnn();
    if (!api.ok()) GTEST_SKIP() << api.status().message();
    api_ = *api;
    std::cout << CudnnName(*api_) << "\n";
    const auto known = CudnnTarget::WithProperties(api_, Properties(900, 132, 232448));
    if (!known.ok() && api_->get_version() > kNewestVersion) {
      GTEST_SKIP() << "it wants to be told more of a card than this test does: " << known.status();
    }
  }
  std::unique_ptr<CudnnAttention> On(const std::string& properties) {
    auto target = CudnnTarget::WithProperties(api_, properties);
    EXPECT_TRUE(target.ok()) << target.status();
    return target.ok() ? std::make_unique<CudnnAttention>(*target) : nullptr;
  }

  std::shared_ptr<const CudnnApi> api_;
};

TEST_F(CudnnAttentionTest, HasPlansForBothPassesInOurLayout) {
  for (const auto& [name, properties] : {std::pair{"sm_80", Properties(800, 108, 166912)},
                                         std::pair{"sm_90", Properties(900, 132, 232448)}}) {
    const auto attention = On(properties);
    ASSERT_NE(attention, nullptr);
    for (const kernels::AttentionShape& shape :
         {kernels::AttentionShape{8, 1024, 12, 64}, kernels::AttentionShape{2, 2048, 16, 128},
          kernels::AttentionShape{1, 17, 2, 80}}) {
      const auto forward = attention->Plan(AttentionPass::kForward, shape);
      ASSERT_TRUE(forward.ok()) << name << ", tokens=" << shape.tokens << ": " << forward.status();
      EXPECT_LE((*forward)->workspace_bytes(), size_t{1} << 20) << name;
      const auto backward = attention->Plan(AttentionPass::kBackward, shape);
      ASSERT_TRUE(backward.ok()) << name << ", tokens=" << shape.tokens << ": "
                                 << backward.status();
      const auto unordered = attention->Plan(AttentionPass::kUnorderedBackward, shape);
      ASSERT_TRUE(unordered.ok()) << name << ", tokens=" << shape.tokens << ": "
                                  << unordered.status();
      // The plan computes the whole batch at once, and its memory does not grow with the square of
      // the number of tokens.
      const int64_t outputs = shape.batch * shape.tokens * shape.heads * shape.head_width;
      EXPECT_LE((*unordered)->workspace_bytes(), 2 * outputs * sizeof(float) + (size_t{1} << 20))
          << name;
      // The workspace has one float per query and head for the graph, in addition to the plan's own
      // part.
      EXPECT_GE((*backward)->workspace_bytes(),
                shape.batch * shape.heads * shape.tokens * sizeof(float))
          << name;
    }
  }
}

TEST_F(CudnnAttentionTest, SaysWhatItHasNothingFor) {
  const auto turing = On(Properties(750, 40, 65536));
  ASSERT_NE(turing, nullptr);
  for (const AttentionPass pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
    const auto plan = turing->Plan(pass, {8, 1024, 12, 64});
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kUnimplemented) << plan.status();
    EXPECT_EQ(plan.status().message().substr(0, 7), "cuDNN 9") << plan.status();
  }
}

TEST_F(CudnnAttentionTest, DoesNotRunForADeviceThatIsNotHere) {
  const auto attention = On(Properties(900, 132, 232448));
  ASSERT_NE(attention, nullptr);
  const auto plan = attention->Plan(AttentionPass::kForward, {1, 64, 1, 64});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->Run({}, nullptr, nullptr).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CudnnAttentionTest, PropertiesThatAreNoneAreRefused) {
  EXPECT_FALSE(CudnnTarget::WithProperties(api_, "{}").ok());
}

}  // namespace
}  // namespace lodestar::cuda

#else

TEST(CudnnAttentionTest, IsBuiltWhereCudnnIs) {
  GTEST_SKIP() << "this machine has no headers of cuDNN 9 (cudnn_graph.h): nothing was tested";
}

#endif
