// SPDX-License-Identifier: Apache-2.0

#include "common/machine/own_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace lodestar::machine {
namespace {

TEST(OwnMemoryTest, GrowsWithWhatIsTaken) {
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = ReadOwnMemory();
  EXPECT_GT(before, 0);
  std::vector<char> taken(kBytes, 1);
  EXPECT_GE(ReadOwnMemory(), before + kBytes / 2);
  EXPECT_EQ(taken.back(), 1);
}

TEST(OwnMemoryTest, IsReadFromTheLineThatSaysIt) {
  const std::string root = testing::TempDir() + "/own_memory";
  std::filesystem::create_directories(root + "/proc/self");
  std::ofstream(root + "/proc/self/status")
      << "Name:\tRssAnon: x\nVmRSS:\t 900 kB\nRssAnon:\t 7 kB\n";
  EXPECT_EQ(ReadOwnMemory(root), 7 << 10);
  std::ofstream(root + "/proc/self/status") << "Name:\tx\n";
  EXPECT_EQ(ReadOwnMemory(root), 0);
  EXPECT_EQ(ReadOwnMemory(root + "/none"), 0);
}

}  // namespace
}  // namespace lodestar::machine
