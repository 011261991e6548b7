// SPDX-License-Identifier: Apache-2.0

// Defines main() of the tests that need a GPU. Without a usable GPU nothing is tested, and the exit
// code is 77, so that it does not look like a success. --gtest_list_tests needs no GPU.
#include <cstdio>

#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"

namespace {
constexpr int kSkippedExitCode = 77;
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const auto device = lodestar::factory::MakeDevice({.kind = "cuda"}, /*why_not_cuda=*/nullptr);
  if (!device.ok()) {
    std::printf("Nothing was tested: %s\n", device.status().ToString().c_str());
    return kSkippedExitCode;
  }
  std::printf("Testing on %s\n", (*device)->capabilities().name.c_str());
  return RUN_ALL_TESTS();
}
