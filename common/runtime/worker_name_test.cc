// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/worker_name.h"

#include <gtest/gtest.h>

#include <string>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(WorkerNameTest, LettersDigitsAndThreeSignsAreNames) {
  EXPECT_OK(CheckWorkerName("--name", "Gpu-box_7.site"));
  EXPECT_OK(CheckWorkerName("--name", std::string(kMaxWorkerNameBytes, 'a')));
}

// psctl takes worker names as arguments, so "-x" would look like a flag. Worker names are also
// names in the folder of residuals, and ".." would lead out of it.
TEST(WorkerNameTest, BeginsWithALetterOrDigit) {
  for (const char* name : {"-x", "--help", ".", "..", "_a", ".hidden"}) {
    EXPECT_THAT(CheckWorkerName("--name", name),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("begins with")))
        << name;
    EXPECT_OK(CheckRecordedName("record", name, kMaxWorkerNameBytes)) << name;
  }
  EXPECT_OK(CheckWorkerName("--name", "7-x"));
  EXPECT_THAT(CheckRecordedName("record", "a/b", kMaxWorkerNameBytes),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(WorkerNameTest, NearestNameIsLegalOrEmpty) {
  EXPECT_EQ(NearestName("gpu-box", 20), "gpu-box");
  EXPECT_EQ(NearestName("_my host!", 20), "my-host-");
  EXPECT_EQ(NearestName("gpu-box", 3), "gpu");
  EXPECT_EQ(NearestName("-.-", 20), "");
}

TEST(WorkerNameTest, OthersAreRefusedWithoutBeingRepeated) {
  EXPECT_THAT(CheckWorkerName("--name", "a\nb"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--name: the name has 3 bytes and a character"),
                             Not(HasSubstr("\n")))));
  EXPECT_THAT(
      CheckWorkerName("--site_name", ""),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--site_name: the name has 0")));
  EXPECT_THAT(CheckWorkerName("--name", std::string(kMaxWorkerNameBytes + 1, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("65 bytes; allowed"), HasSubstr("1 to 64"))));
}

}  // namespace
}  // namespace lodestar
