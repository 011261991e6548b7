// SPDX-License-Identifier: Apache-2.0

#include "common/storage/git_lfs_pointer.h"

#include "absl/strings/string_view.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status Check(absl::string_view text) {
  return CheckNotGitLfsPointer(
      "d/train.bin", absl::MakeSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

TEST(GitLfsPointerTest, RefusesPointerAndNamesPathSizeAndCommand) {
  EXPECT_THAT(
      Check("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123456\n"),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("d/train.bin"), HasSubstr("123456"), HasSubstr("git lfs pull"))));
}

TEST(GitLfsPointerTest, PassesOtherFiles) {
  EXPECT_OK(Check(""));
  EXPECT_OK(Check("version 2 of a text about https://git-lfs.github.com/spec/"));
}

}  // namespace
}  // namespace lodestar::storage
