// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/checkpoints/checkpoint_tracker.h"

#include <gtest/gtest.h>

#include <string>

namespace lodestar::checkpoints {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);

TEST(CheckpointTrackerTest, CountsEachShardOnceAndIgnoresOtherDirectories) {
  CheckpointTracker tracker(2);
  const std::string directory = tracker.Begin("d", Round(3), {}, kNow);
  EXPECT_FALSE(tracker.OnSaved(0, "other", std::string("x")).has_value());
  EXPECT_FALSE(tracker.OnSaved(0, directory, std::string("a")).has_value());
  EXPECT_FALSE(tracker.OnSaved(0, directory, std::string("a")).has_value());
  EXPECT_TRUE(tracker.OnSaved(1, directory, std::string("b")).has_value());
  EXPECT_FALSE(tracker.Finish("other", PublishedCheckpoint{}, kNow));
  EXPECT_TRUE(tracker.is_active());
  EXPECT_TRUE(tracker.Finish(directory, PublishedCheckpoint{"d/x", Round(3), 1}, kNow));
  EXPECT_FALSE(tracker.is_active());
}

TEST(CheckpointTrackerTest, RequestDuringOneIsServedByTheNext) {
  CheckpointTracker tracker(1);
  const uint64_t first = tracker.Request(absl::UnixEpoch());
  const std::string directory = tracker.Begin("d", Round(1), {}, kNow);
  const uint64_t second = tracker.Request(absl::UnixEpoch());
  EXPECT_NE(first, second);
  EXPECT_TRUE(tracker.is_requested());
  tracker.Finish(directory, PublishedCheckpoint{"d/1", Round(1), 1}, kNow);
  EXPECT_TRUE(tracker.OutcomeOf(first)->ok());
  EXPECT_FALSE(tracker.OutcomeOf(second).has_value());
  tracker.Begin("d", Round(2), {}, kNow);
  tracker.Abort(absl::UnavailableError("lost"));
  EXPECT_EQ(tracker.OutcomeOf(second)->status().code(), absl::StatusCode::kUnavailable);
}

TEST(CheckpointTrackerTest, AnAnswerToATryThatWasGivenUpIsNoneToTheNext) {
  CheckpointTracker tracker(2);
  const std::string directory = tracker.Begin("d", Round(1), {}, kNow);
  EXPECT_FALSE(tracker.IsGivenUp(directory));
  tracker.OnSaved(0, directory, absl::ResourceExhaustedError("the disk is full"));
  EXPECT_TRUE(tracker.IsGivenUp(directory));
  EXPECT_FALSE(tracker.IsGivenUp("other"));
  const std::string next = tracker.Begin("d", Round(1), {}, kNow);
  EXPECT_NE(next, directory);
  EXPECT_FALSE(tracker.OnSaved(0, directory, std::string("late")).has_value());
  EXPECT_FALSE(tracker.OnSaved(1, next, std::string("b")).has_value()) << "shard 0 is awaited";
  EXPECT_TRUE(tracker.IsGivenUp(directory));
  EXPECT_FALSE(tracker.IsGivenUp(next));
}

TEST(CheckpointTrackerTest, ForgetsOldOutcomes) {
  CheckpointTracker tracker(1);
  const uint64_t first = tracker.Request(absl::UnixEpoch());
  for (size_t i = 0; i <= CheckpointTracker::kMaxOutcomes; ++i) {
    const std::string directory = tracker.Begin("d", Round(static_cast<int64_t>(i)), {}, kNow);
    tracker.Finish(directory, PublishedCheckpoint{}, kNow);
  }
  EXPECT_EQ(tracker.OutcomeOf(first)->status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lodestar::checkpoints
