#include "common/worker_name.h"

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

TEST(WorkerNameTest, OthersAreRefusedWithoutBeingRepeated) {
  EXPECT_THAT(
      CheckWorkerName("--name", "a\nb"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("--name: name of 3 bytes with a character"), Not(HasSubstr("\n")))));
  EXPECT_THAT(CheckWorkerName("--site_name", ""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--site_name: name of 0")));
  EXPECT_THAT(CheckWorkerName("--name", std::string(kMaxWorkerNameBytes + 1, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("65 bytes; allowed"), HasSubstr("1 to 64"))));
}

}  // namespace
}  // namespace lodestar
