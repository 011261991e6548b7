#include "common/security/secret_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/testing/status_matchers.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

std::string PathOf(const std::string& name) {
  return ::testing::TempDir() + "/secret_file_" + name;
}

mode_t ModeOf(const std::string& path) {
  struct stat facts {};
  EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
  return facts.st_mode & 0777;
}

TEST(SecretFileTest, IsForItsOwnerOnly) {
  const std::string path = PathOf("own");
  ASSERT_OK(WriteSecretFile(path, "first"));
  ASSERT_OK(WriteSecretFile(path, "second"));
  EXPECT_EQ(ModeOf(path), 0600);
  const auto contents = ReadSecretFile(path, 100);
  ASSERT_OK(contents);
  EXPECT_EQ(*contents, "second");
}

TEST(SecretFileTest, OneThatOthersMayReadIsRefusedWithTheRemedy) {
  const std::string path = PathOf("open");
  ASSERT_OK(WriteSecretFile(path, "x"));
  for (const mode_t mode : {0640, 0604, 0620, 0601}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_THAT(ReadSecretFile(path, 100),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("chmod 600 " + path)));
  }
}

TEST(SecretFileTest, WhatIsNoSmallFileIsRefused) {
  const std::string path = PathOf("long");
  ASSERT_OK(WriteSecretFile(path, std::string(101, 'x')));
  EXPECT_THAT(ReadSecretFile(path, 100),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("101 bytes")));
  EXPECT_THAT(ReadSecretFile(PathOf("missing"), 100), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(ReadSecretFile(::testing::TempDir(), 100).ok());
  EXPECT_THAT(ReadSecretFile("/dev/null", 100), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SecretFileTest, FoldersAreMadeForTheOwnerAndOpenOnesRefused) {
  const std::string folder = PathOf("folder") + "/a/b";
  ASSERT_OK(MakeSecretFolder(folder));
  ASSERT_OK(MakeSecretFolder(folder));
  EXPECT_EQ(ModeOf(folder), 0700);
  ASSERT_EQ(chmod(folder.c_str(), 0770), 0);
  EXPECT_THAT(MakeSecretFolder(folder),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("others may write")));
  const std::string file = PathOf("file");
  ASSERT_OK(WriteSecretFile(file, "x"));
  EXPECT_FALSE(MakeSecretFolder(file).ok());
  EXPECT_FALSE(MakeSecretFolder(file + "/under").ok());
}

}  // namespace
}  // namespace lodestar
