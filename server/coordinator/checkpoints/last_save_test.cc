// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/checkpoints/last_save.h"

#include <gtest/gtest.h>

#include <vector>

namespace lodestar::checkpoints {
namespace {

using Place = LastSave::Place;

const absl::Time kStart = absl::FromUnixSeconds(1000);
const absl::Status kFull = absl::ResourceExhaustedError("disk full");

// Fails every try as soon as it is due. Stops after `limit` tries. Returns their places and times.
std::vector<std::pair<Place, absl::Duration>> FailAll(LastSave& save, size_t limit) {
  std::vector<std::pair<Place, absl::Duration>> tries;
  absl::Time now = kStart;
  while (!save.outcome().has_value() && tries.size() < limit) {
    if (const auto place = save.Due(now); place.has_value()) {
      tries.emplace_back(*place, now - kStart);
      save.OnFailed(kFull, now);
    } else {
      now += absl::Milliseconds(500);
    }
  }
  return tries;
}

TEST(LastSaveTest, WhoWaitsToExitGetsOneLap) {
  LastSave save(/*has_fallback=*/false);
  EXPECT_FALSE(save.Due(kStart).has_value());
  save.Begin(/*gives_up=*/true, kStart);
  const std::vector<std::pair<Place, absl::Duration>> tries = {
      {Place::kFolder, absl::ZeroDuration()},
      {Place::kFolder, absl::Seconds(1)},
      {Place::kFolder, absl::Seconds(5)}};
  EXPECT_EQ(FailAll(save, 10), tries);
  EXPECT_EQ(save.outcome()->status(), kFull);
}

TEST(LastSaveTest, TheFallbackIsTheLastTryOfALap) {
  LastSave save(/*has_fallback=*/true);
  save.Begin(/*gives_up=*/true, kStart);
  const auto tries = FailAll(save, 10);
  ASSERT_EQ(tries.size(), 4);
  EXPECT_EQ(tries[3], std::pair(Place::kFallback, absl::Seconds(5))) << "without a pause";
  EXPECT_TRUE(save.outcome().has_value());
}

TEST(LastSaveTest, AServerThatStaysUpTriesOnAtLongerAndLongerPauses) {
  LastSave save(/*has_fallback=*/true);
  save.Begin(/*gives_up=*/false, kStart);
  const auto tries = FailAll(save, 8);
  ASSERT_EQ(tries.size(), 8);
  EXPECT_FALSE(save.outcome().has_value());
  EXPECT_EQ(tries[5].second - tries[4].second, LastSave::kLongestPause);
  EXPECT_EQ(tries[7].first, Place::kFallback);
  EXPECT_EQ(save.error(), kFull);
}

TEST(LastSaveTest, WhoWantsToExitMeanwhileStartsALapAtOnce) {
  LastSave save(/*has_fallback=*/false);
  save.Begin(/*gives_up=*/false, kStart);
  FailAll(save, 8);
  const absl::Time later = kStart + absl::Hours(1);
  save.OnFailed(kFull, later);
  EXPECT_FALSE(save.Due(later).has_value());
  save.Begin(/*gives_up=*/true, later);
  EXPECT_EQ(save.Due(later), Place::kFolder);
  save.Begin(/*gives_up=*/false, later);
  for (int i = 0; i < LastSave::kTries; ++i) save.OnFailed(kFull, later);
  EXPECT_TRUE(save.outcome().has_value()) << "the later caller does not take it back";
}

TEST(LastSaveTest, AnErrorIsTriedAgainByTheNextCallerASuccessIsNot) {
  LastSave save(/*has_fallback=*/false);
  save.Begin(/*gives_up=*/true, kStart);
  save.End(kFull);
  save.Begin(/*gives_up=*/true, kStart);
  EXPECT_EQ(save.Due(kStart), Place::kFolder);
  save.End(PublishedCheckpoint{"ckpt/round-00000001", Round(1), 7});
  save.Begin(/*gives_up=*/true, kStart);
  EXPECT_FALSE(save.Due(kStart).has_value());
  EXPECT_TRUE(save.outcome()->ok());
}

}  // namespace
}  // namespace lodestar::checkpoints
