// SPDX-License-Identifier: Apache-2.0

#include "common/machine/usable_cores.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace lodestar::machine {
namespace {

// Fixture for a process that may run on 16 cores, with files of the test as /proc and /sys.
class UsableCoresTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = absl::StrCat(testing::TempDir(), "/cores.XXXXXX");
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = absl::StrCat(root_, "/", path);
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << "\n";
  }
  int Cores() const { return CoresWithinQuota(16, root_); }

  std::string root_;
};

TEST_F(UsableCoresTest, AreThoseOfTheAffinityWithoutAQuota) {
  EXPECT_EQ(Cores(), 16);
  Write("proc/self/cgroup", "0::/jobs/7");
  Write("sys/fs/cgroup/jobs/7/cpu.max", "max 100000");
  EXPECT_EQ(Cores(), 16);
}

TEST_F(UsableCoresTest, QuotaOfTheSecondVersionIsRoundedUp) {
  Write("proc/self/cgroup", "0::/jobs/7");
  Write("sys/fs/cgroup/jobs/7/cpu.max", "250000 100000");
  EXPECT_EQ(Cores(), 3);
  Write("sys/fs/cgroup/jobs/7/cpu.max", "10000 100000");
  EXPECT_EQ(Cores(), 1);
  Write("sys/fs/cgroup/jobs/7/cpu.max", "9900000 100000");
  EXPECT_EQ(Cores(), 16) << "the affinity is less";
}

TEST_F(UsableCoresTest, TightestGroupOnTheWayToTheRootDecides) {
  Write("proc/self/cgroup", "0::/jobs/7");
  Write("sys/fs/cgroup/jobs/cpu.max", "200000 100000");
  Write("sys/fs/cgroup/jobs/7/cpu.max", "400000 100000");
  EXPECT_EQ(Cores(), 2);
  // In a container the tree begins at the container's group, but /proc/self/cgroup has the path on
  // the host.
  Write("sys/fs/cgroup/cpu.max", "100000 100000");
  EXPECT_EQ(Cores(), 1);
}

TEST_F(UsableCoresTest, QuotaOfTheFirstVersionCounts) {
  Write("proc/self/cgroup", "7:memory:/jobs\n4:cpu,cpuacct:/jobs\n0::/");
  Write("sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "50000");
  Write("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(Cores(), 16);
  Write("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "75000");
  EXPECT_EQ(Cores(), 2);
}

TEST_F(UsableCoresTest, PassesOverWhatIsNoQuota) {
  Write("proc/self/cgroup", "0::/jobs");
  for (const char* text : {"", "100000", "x y", "0 100000", "100000 0", "-5 100000"}) {
    Write("sys/fs/cgroup/jobs/cpu.max", text);
    EXPECT_EQ(Cores(), 16) << text;
  }
}

TEST(UsableCoresOfThisProcessTest, AreAtLeastOne) { EXPECT_GE(UsableCores(), 1); }

}  // namespace
}  // namespace lodestar::machine
