// SPDX-License-Identifier: Apache-2.0

#include "common/security/secret_file.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace lodestar::security {
namespace {

using ::testing::AllOf;
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
                StatusIs(absl::StatusCode::kPermissionDenied,
                         AllOf(HasSubstr("chmod 600 " + path), HasSubstr("defaultMode: 0400"))));
  }
}

// An entry of an access control list, see acl(5).
struct AclEntry {
  uint16_t tag;
  uint16_t permissions;
  uint32_t id;
};

// Gives the file a list with these entries besides those of owner, group, mask and others. Returns
// false if the file system has no lists.
bool SetAcl(const std::string& path, const std::vector<AclEntry>& entries) {
  constexpr uint32_t kNoId = 0xffffffff;
  std::vector<AclEntry> all = {{0x01, 4, kNoId}};
  all.insert(all.end(), entries.begin(), entries.end());
  if (entries.empty() || entries.front().tag != 0x04) all.push_back({0x04, 0, kNoId});
  std::stable_sort(all.begin(), all.end(),
                   [](const AclEntry& a, const AclEntry& b) { return a.tag < b.tag; });
  all.push_back({0x10, 4, kNoId});
  all.push_back({0x20, 0, kNoId});
  std::string list = {2, 0, 0, 0};
  list.append(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(AclEntry));
  return setxattr(path.c_str(), "system.posix_acl_access", list.data(), list.size(), 0) == 0;
}

TEST(SecretFileTest, FileWhoseListNamesThisUserAloneIsRead) {
  const std::string path = PathOf("listed");
  ASSERT_OK(WriteSecretFile(path, "x"));
  const AclEntry own = {0x02, 4, geteuid()};
  if (!SetAcl(path, {own}) && errno == EOPNOTSUPP) GTEST_SKIP() << "no access control lists here";
  EXPECT_EQ(ModeOf(path), 0440);
  EXPECT_OK(ReadSecretFile(path, 100));

  const AclEntry other_user = {0x02, 4, geteuid() + 1};
  const AclEntry other_group = {0x08, 4, 12345};
  const AclEntry group = {0x04, 4, 0xffffffff};
  for (const std::vector<AclEntry>& entries :
       {std::vector{own, other_user}, std::vector{own, other_group}, std::vector{group, own}}) {
    ASSERT_TRUE(SetAcl(path, entries));
    EXPECT_THAT(ReadSecretFile(path, 100), StatusIs(absl::StatusCode::kPermissionDenied));
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

TEST(SecretFileTest, KeptFileThatBecameOpenIsClosed) {
  const std::string path = PathOf("kept");
  ASSERT_OK(WriteSecretFile(path, "x"));
  ASSERT_EQ(chmod(path.c_str(), 0660), 0);  // Kubernetes does the same for fsGroup
  EXPECT_THAT(ReadKeptSecretFile(path, 100), IsOkAndHolds("x"));
  EXPECT_EQ(ModeOf(path), 0600);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);  // every user may have read it
  EXPECT_THAT(ReadKeptSecretFile(path, 100), StatusIs(absl::StatusCode::kPermissionDenied));
}

// Gives this process another user and group. Files of root then belong to another user than this
// process.
void BecomeUser(uid_t user, gid_t group) {
  const gid_t groups[] = {group};
  if (setgroups(1, groups) != 0 || setresgid(group, group, group) != 0 ||
      setresuid(user, user, user) != 0) {
    std::_Exit(2);
  }
}

constexpr uid_t kUser = 54321;
constexpr uid_t kOtherUser = 54322;
constexpr gid_t kGroup = 54323;

class SecretFileOfRootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "becomes other users, which only root may";
    char folder[] = "/tmp/secret_file_of_root_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    ASSERT_EQ(chmod(folder, 0755), 0);
    folder_ = folder;
    path_ = folder_ + "/secret";
    ASSERT_OK(WriteSecretFile(path_, "x"));
    if (chown(path_.c_str(), kOtherUser, kGroup) != 0) {
      GTEST_SKIP() << "this user namespace has no other users";
    }
    ASSERT_EQ(chown(path_.c_str(), 0, 0), 0);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // Runs `read` as `user` in the group kGroup. Returns 0 if `read` returns OK. Returns 1 if `read`
  // returns PermissionDenied with `text` in its message.
  template <typename Read>
  int Outcome(uid_t user, const Read& read, const std::string& text = "") {
    const pid_t child = fork();
    if (child == 0) {
      BecomeUser(user, kGroup);
      const absl::Status status = read();
      if (status.ok()) std::_Exit(0);
      const bool is_told = std::string(status.message()).find(text) != std::string::npos;
      std::_Exit(absl::IsPermissionDenied(status) && is_told ? 1 : 3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }

  std::string folder_;
  std::string path_;
};

TEST_F(SecretFileOfRootTest, SecretOfAPodIsTakenByThoseInItsGroup) {
  const auto read = [this] { return ReadSecretFile(path_, 100).status(); };
  ASSERT_EQ(chown(path_.c_str(), 0, kGroup), 0);
  for (const mode_t mode : {0440, 0640}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_EQ(Outcome(kUser, read), 0) << mode;
  }
  for (const mode_t mode : {0660, 0644}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_EQ(Outcome(kUser, read, "defaultMode: 0400"), 1) << mode;
  }
  ASSERT_EQ(chown(path_.c_str(), kOtherUser, kGroup), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  EXPECT_EQ(Outcome(kUser, read, "belongs to user 54322"), 1) << "of another user than root";
}

TEST_F(SecretFileOfRootTest, FolderOfAnotherUserIsRefusedAndRunAsUserIsNamed) {
  const auto make = [this] { return MakeSecretFolder(folder_); };
  ASSERT_EQ(chown(folder_.c_str(), kUser, kGroup), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 02770), 0);
  EXPECT_EQ(Outcome(kOtherUser, make, "runAsUser"), 1);
  EXPECT_EQ(Outcome(kUser, make), 0);
  EXPECT_EQ(ModeOf(folder_), 0700);
}

TEST_F(SecretFileOfRootTest, FolderThatOthersHavePutSomethingIntoIsRefused) {
  ASSERT_EQ(chown(path_.c_str(), kOtherUser, kGroup), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0770), 0);
  EXPECT_THAT(MakeSecretFolder(folder_), StatusIs(absl::StatusCode::kPermissionDenied,
                                                  HasSubstr(path_ + " belongs to user 54322")));
}

TEST(SecretFileTest, FoldersAreMadeForTheOwnerAndOwnOnesClosed) {
  const std::string folder = PathOf("folder") + "/a/b";
  ASSERT_OK(MakeSecretFolder(folder));
  ASSERT_OK(MakeSecretFolder(folder));
  EXPECT_EQ(ModeOf(folder), 0700);
  ASSERT_EQ(chmod(folder.c_str(), 0770), 0);
  EXPECT_OK(MakeSecretFolder(folder));
  EXPECT_EQ(ModeOf(folder), 0700);
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  EXPECT_THAT(MakeSecretFolder(folder), StatusIs(absl::StatusCode::kPermissionDenied));
  const std::string file = PathOf("file");
  ASSERT_OK(WriteSecretFile(file, "x"));
  EXPECT_FALSE(MakeSecretFolder(file).ok());
  // The home of a service's user may be no folder, but a file. Then the path of the secret folder
  // leads through that file.
  EXPECT_THAT(MakeSecretFolder(file + "/under").message(),
              AllOf(HasSubstr(file + "/under"), HasSubstr("--state_dir"), HasSubstr("HOME")));
}

}  // namespace
}  // namespace lodestar::security
