// SPDX-License-Identifier: Apache-2.0

#include "common/machine/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace lodestar::machine {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Fixture with files in the form of /proc and /sys. The machine has 1000 MiB, of which 600 MiB are
// available.
class HostMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = absl::StrCat(testing::TempDir(), "/host.XXXXXX");
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    Write(
        "proc/meminfo",
        "MemTotal:        1024000 kB\nMemFree:          204800 kB\nMemAvailable:     614400 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = absl::StrCat(root_, "/", path);
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }

  // Writes a group of version 2 that has used `used` MiB, `cached` of them for files.
  void WriteGroup(const std::string& group, const std::string& limit, int64_t used,
                  int64_t cached = 0) {
    Write(absl::StrCat("sys/fs/cgroup", group, "/memory.max"), absl::StrCat(limit, "\n"));
    Write(absl::StrCat("sys/fs/cgroup", group, "/memory.current"), absl::StrCat(used * kMiB, "\n"));
    Write(absl::StrCat("sys/fs/cgroup", group, "/memory.stat"),
          absl::StrCat("anon 7\ninactive_file ", cached * kMiB, "\nactive_file 0\n"));
  }

  void ExpectMemory(int64_t total, int64_t available, const std::string& limited_by) {
    const HostMemory memory = ReadHostMemory(root_);
    EXPECT_EQ(memory.total_bytes, total * kMiB);
    EXPECT_EQ(memory.available_bytes, available * kMiB);
    EXPECT_EQ(memory.limited_by, limited_by);
  }

  std::string root_;
};

TEST_F(HostMemoryTest, IsTheMachinesWithoutLimits) { ExpectMemory(1000, 600, "this machine"); }

TEST_F(HostMemoryTest, TheTightestGroupOnTheWayToTheRootDecides) {
  Write("proc/self/cgroup", "0::/jobs/7\n");
  WriteGroup("/jobs/7", "max", 10);
  ExpectMemory(1000, 600, "this machine");
  WriteGroup("/jobs", absl::StrCat(400 * kMiB), 300);
  ExpectMemory(400, 100, "the control group /jobs");
  WriteGroup("/jobs/7", absl::StrCat(100 * kMiB), 10);
  ExpectMemory(100, 90, "the control group /jobs/7");
}

TEST_F(HostMemoryTest, CachedFilesOfAGroupCountAsAvailable) {
  Write("proc/self/cgroup", "0::/jobs\n");
  WriteGroup("/jobs", absl::StrCat(400 * kMiB), 380, 300);
  ExpectMemory(400, 320, "the control group /jobs");
}

TEST_F(HostMemoryTest, AContainerSeesItsGroupAsTheRoot) {
  Write("proc/self/cgroup", "0::/\n");
  WriteGroup("", absl::StrCat(200 * kMiB), 50);
  ExpectMemory(200, 150, "the control group /");
}

TEST_F(HostMemoryTest, ReadsTheFirstVersionAndPathsOfTheHost) {
  Write("proc/self/cgroup", "9:cpu:/x\n4:memory:/docker/abc\n0::/\n");
  const std::string group = "sys/fs/cgroup/memory/";
  Write(group + "memory.limit_in_bytes", absl::StrCat(300 * kMiB));
  Write(group + "memory.usage_in_bytes", absl::StrCat(200 * kMiB));
  Write(group + "memory.stat", absl::StrCat("total_inactive_file ", 20 * kMiB, "\n"));
  ExpectMemory(300, 120, "the control group /");
  Write(group + "memory.limit_in_bytes", "9223372036854771712\n");
  ExpectMemory(1000, 600, "this machine");
}

TEST_F(HostMemoryTest, UlimitsCount) {
  Write("proc/self/statm", "25600 100 100 10 0 12800 0\n");  // 100 MiB, of which 50 MiB are data
  Write("proc/self/limits",
        absl::StrCat("Limit          Soft Limit   Hard Limit   Units\n"
                     "Max data size             unlimited            unlimited       bytes\n"
                     "Max address space         ",
                     500 * kMiB, "            unlimited            bytes\n"));
  ExpectMemory(500, 400, "ulimit -v");
}

TEST_F(HostMemoryTest, AnOverusedGroupLeavesNothing) {
  Write("proc/self/cgroup", "0::/jobs\n");
  WriteGroup("/jobs", absl::StrCat(10 * kMiB), 20);
  ExpectMemory(10, 0, "the control group /jobs");
}

TEST_F(HostMemoryTest, DamagedFilesAreLeftOut) {
  Write("proc/self/cgroup", "4:memory\n::\n0::/../other\nnonsense");
  Write("proc/self/limits", "Max address space");
  Write("proc/self/statm", "1 2");
  WriteGroup("", "-5", 1);
  ExpectMemory(1000, 600, "this machine");
  Write("proc/meminfo", "MemTotal: many kB\n");
  EXPECT_EQ(ReadHostMemory(root_).total_bytes, 0);
}

TEST(HostMemoryOfThisMachineTest, IsKnown) {
  const HostMemory memory = ReadHostMemory();
  EXPECT_GT(memory.total_bytes, 0);
  EXPECT_GT(memory.available_bytes, 0);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace lodestar::machine
