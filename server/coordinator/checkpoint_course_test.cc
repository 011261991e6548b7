#include "server/coordinator/checkpoint_course.h"

#include <gtest/gtest.h>

#include <string>

namespace lodestar {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);

TEST(CheckpointCourseTest, CountsEachShardOnceAndIgnoresOtherDirectories) {
  CheckpointCourse course(2);
  const std::string directory = course.Begin("d", Round(3), {}, kNow);
  EXPECT_FALSE(course.OnSaved(0, "other", std::string("x")).has_value());
  EXPECT_FALSE(course.OnSaved(0, directory, std::string("a")).has_value());
  EXPECT_FALSE(course.OnSaved(0, directory, std::string("a")).has_value());
  EXPECT_TRUE(course.OnSaved(1, directory, std::string("b")).has_value());
  EXPECT_FALSE(course.Finish("other", PublishedCheckpoint{}, kNow));
  EXPECT_TRUE(course.is_active());
  EXPECT_TRUE(course.Finish(directory, PublishedCheckpoint{"d/x", Round(3), 1}, kNow));
  EXPECT_FALSE(course.is_active());
}

TEST(CheckpointCourseTest, RequestDuringOneIsServedByTheNext) {
  CheckpointCourse course(1);
  const uint64_t first = course.Request(absl::UnixEpoch());
  const std::string directory = course.Begin("d", Round(1), {}, kNow);
  const uint64_t second = course.Request(absl::UnixEpoch());
  EXPECT_NE(first, second);
  EXPECT_TRUE(course.is_requested());
  course.Finish(directory, PublishedCheckpoint{"d/1", Round(1), 1}, kNow);
  EXPECT_TRUE(course.OutcomeOf(first)->ok());
  EXPECT_FALSE(course.OutcomeOf(second).has_value());
  course.Begin("d", Round(2), {}, kNow);
  course.Abort(absl::UnavailableError("lost"));
  EXPECT_EQ(course.OutcomeOf(second)->status().code(), absl::StatusCode::kUnavailable);
}

TEST(CheckpointCourseTest, AnAnswerToATryThatWasGivenUpIsNoneToTheNext) {
  CheckpointCourse course(2);
  const std::string directory = course.Begin("d", Round(1), {}, kNow);
  EXPECT_FALSE(course.IsGivenUp(directory));
  course.OnSaved(0, directory, absl::ResourceExhaustedError("the disk is full"));
  EXPECT_TRUE(course.IsGivenUp(directory));
  EXPECT_FALSE(course.IsGivenUp("other"));
  const std::string next = course.Begin("d", Round(1), {}, kNow);
  EXPECT_NE(next, directory);
  EXPECT_FALSE(course.OnSaved(0, directory, std::string("late")).has_value());
  EXPECT_FALSE(course.OnSaved(1, next, std::string("b")).has_value()) << "shard 0 is awaited";
  EXPECT_TRUE(course.IsGivenUp(directory));
  EXPECT_FALSE(course.IsGivenUp(next));
}

TEST(CheckpointCourseTest, ForgetsOldOutcomes) {
  CheckpointCourse course(1);
  const uint64_t first = course.Request(absl::UnixEpoch());
  for (size_t i = 0; i <= CheckpointCourse::kMaxOutcomes; ++i) {
    const std::string directory = course.Begin("d", Round(static_cast<int64_t>(i)), {}, kNow);
    course.Finish(directory, PublishedCheckpoint{}, kNow);
  }
  EXPECT_EQ(course.OutcomeOf(first)->status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lodestar
