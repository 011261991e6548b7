// SPDX-License-Identifier: Apache-2.0

#include "worker/model/activation_arena.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"

namespace lodestar::model {
namespace {

TEST(ActivationArenaTest, FillsAlignedBuffersThatDoNotOverlap) {
  auto device = *factory::MakeDevice("oracle", 0, nullptr);
  ActivationArena arena;
  const std::vector<int64_t> sizes = {1, 0, 31, 257, 64};
  const std::vector<kernels::DType> dtypes = {kernels::DType::kU8, kernels::DType::kF64,
                                              kernels::DType::kF32, kernels::DType::kI32,
                                              kernels::DType::kF64};
  std::vector<kernels::Buf> bufs(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) arena.Plan(&bufs[i], sizes[i], dtypes[i]);
  ASSERT_TRUE(arena.Allocate("a model", device.get()).ok());

  const char* previous_end = bufs[0].as<char>();
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(bufs[i].num_elements, sizes[i]);
    EXPECT_EQ(bufs[i].dtype, dtypes[i]);
    const char* begin = bufs[i].as<char>();
    const int64_t bytes = sizes[i] * static_cast<int64_t>(kernels::DTypeBytes(dtypes[i]));
    EXPECT_EQ((begin - bufs[0].as<char>()) % ActivationArena::kAlignmentBytes, 0);
    EXPECT_GE(begin, previous_end);
    previous_end = begin + bytes;
  }
  EXPECT_LE(previous_end - bufs[0].as<char>(), arena.num_bytes());
}

}  // namespace
}  // namespace lodestar::model
