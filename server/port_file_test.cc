// SPDX-License-Identifier: Apache-2.0

#include "server/port_file.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "common/runtime/file_io.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::server {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PortFileTest : public testing::Test {
 protected:
  PortFileTest() { fs::create_directories(folder_); }
  ~PortFileTest() override { fs::remove_all(folder_); }

  void Put(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  absl::StatusOr<std::string> Text() const { return ReadWholeFile(path_, 1000); }

  const std::string folder_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path_ = folder_ + "/port";
};

TEST_F(PortFileTest, RemovesWhatAnEarlierProcessLeft) {
  for (const char* text : {"50051\n", "1", "65535"}) {
    Put(text);
    EXPECT_OK(PortFile::Clear(path_)) << text;
    EXPECT_FALSE(fs::exists(path_)) << text;
  }
  EXPECT_OK(PortFile::Clear(path_)) << "there is none";
  EXPECT_OK(PortFile::Clear(""));
}

TEST_F(PortFileTest, RefusesAndKeepsWhatIsNoPort) {
  for (const char* text : {"words of a corpus\n", "0\n", "65536\n", "-1", "12 34", "1234567"}) {
    Put(text);
    EXPECT_THAT(PortFile::Clear(path_),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("--port_file=" + path_), HasSubstr("move"))))
        << text;
    EXPECT_THAT(Text(), IsOkAndHolds(text));
  }
  Put("");
  EXPECT_OK(PortFile::Clear(path_));
}

TEST_F(PortFileTest, IsThereAsLongAsItsProcessRunsInOrder) {
  {
    ASSERT_OK_AND_ASSIGN(PortFile file, PortFile::Write(path_, 4711));
    EXPECT_THAT(Text(), IsOkAndHolds("4711\n"));
    const PortFile moved = std::move(file);
    EXPECT_THAT(Text(), IsOkAndHolds("4711\n"));
  }
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(PortFileTest, KeepsTheFileOfAProcessThatRuns) {
  // A lock belongs to an open file, and not to a process. So this test can play two processes.
  ASSERT_OK_AND_ASSIGN(std::optional<PortFile> server, PortFile::Write(path_, 4711));
  EXPECT_OK(PortFile::Clear(path_));
  EXPECT_THAT(Text(), IsOkAndHolds("4711\n"));
  // When the first server ends, the file of the second server must stay.
  ASSERT_OK_AND_ASSIGN(const PortFile standby, PortFile::Write(path_, 4712));
  server.reset();
  EXPECT_THAT(Text(), IsOkAndHolds("4712\n"));
}

TEST_F(PortFileTest, FollowsALinkAndLeavesIt) {
  fs::create_symlink("target", path_);
  {
    ASSERT_OK_AND_ASSIGN(const PortFile file, PortFile::Write(path_, 4711));
    EXPECT_THAT(Text(), IsOkAndHolds("4711\n"));
  }
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_FALSE(fs::exists(folder_ + "/target"));
}

}  // namespace
}  // namespace lodestar::server
