// main() of the tests that need a GPU: without a usable one nothing is tested, and the exit code
// says so, so that nobody takes it for a success. --gtest_list_tests needs none.
#include <cstdio>

#include "gtest/gtest.h"
#include "kernels/device_factory.h"

namespace {
constexpr int kSkippedExitCode = 77;
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const auto device = lodestar::MakeDevice({.kind = "cuda"}, /*why_not_cuda=*/nullptr);
  if (!device.ok()) {
    std::printf("Nothing was tested: %s\n", device.status().ToString().c_str());
    return kSkippedExitCode;
  }
  std::printf("Testing on %s\n", (*device)->capabilities().name.c_str());
  return RUN_ALL_TESTS();
}
