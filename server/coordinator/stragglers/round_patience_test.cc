// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/round_patience.h"

#include <gtest/gtest.h>

#include <optional>

namespace lodestar::stragglers {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);
constexpr absl::Duration kTimeout = absl::Hours(1);

messages::Grant GrantOf(int64_t num_samples, int64_t num_heldout_samples = 0) {
  messages::Grant grant;
  grant.kind = messages::Grant::Kind::kTrain;
  grant.num_samples = num_samples;
  grant.num_heldout_samples = num_heldout_samples;
  return grant;
}

TEST(MemberPaceTest, UsualTimeIsTheLongestOfTheLastFewRounds) {
  MemberPace pace;
  EXPECT_EQ(pace.UsualFor(GrantOf(8)), std::nullopt);
  pace.OnRound(GrantOf(8), absl::Seconds(80));
  for (int i = 0; i < 3; ++i) pace.OnRound(GrantOf(8), absl::Seconds(1));
  EXPECT_EQ(pace.UsualFor(GrantOf(8)), absl::Seconds(10));
  for (int i = 0; i < 10; ++i) pace.OnRound(GrantOf(8), absl::Seconds(1));
  EXPECT_LT(*pace.UsualFor(GrantOf(8)), absl::Seconds(3));
  EXPECT_GE(*pace.UsualFor(GrantOf(8)), absl::Seconds(1));
}

TEST(MemberPaceTest, UsualTimeGrowsWithTheSamples) {
  MemberPace pace;
  pace.OnRound(GrantOf(8), absl::Seconds(4));
  EXPECT_EQ(pace.UsualFor(GrantOf(24)), absl::Seconds(12));
  EXPECT_EQ(pace.UsualFor(GrantOf(2)), absl::Seconds(4)) << "the way to the servers is as long";
}

TEST(MemberPaceTest, LateTimeIgnoresOneSlowRound) {
  MemberPace pace;
  EXPECT_EQ(pace.LatelyFor(8), std::nullopt);
  pace.OnRound(GrantOf(8, /*num_heldout_samples=*/1), absl::Seconds(1));
  EXPECT_EQ(pace.LatelyFor(8), std::nullopt) << "it was an evaluation as well";
  pace.OnRound(GrantOf(8), absl::Seconds(4));
  pace.OnRound(GrantOf(8), absl::Seconds(80));
  EXPECT_EQ(pace.LatelyFor(8), absl::Seconds(4));
  EXPECT_EQ(pace.LatelyFor(2), absl::Seconds(1));
  pace.OnRound(GrantOf(8), absl::Seconds(60));
  EXPECT_EQ(pace.LatelyFor(8), absl::Seconds(60)) << "it has become slow";
}

TEST(MemberPaceTest, EvaluationsCountApartFromTraining) {
  MemberPace pace;
  pace.OnRound(GrantOf(8), absl::Seconds(1));
  EXPECT_EQ(pace.UsualFor(GrantOf(8, 1000)), std::nullopt);
  pace.OnRound(GrantOf(8, 1000), absl::Hours(1));
  EXPECT_EQ(pace.UsualFor(GrantOf(8, 1000)), absl::Hours(1));
  EXPECT_EQ(pace.UsualFor(GrantOf(8)), absl::Seconds(1));
  messages::Grant evaluation = GrantOf(0, 1000);
  evaluation.kind = messages::Grant::Kind::kEvaluate;
  EXPECT_EQ(pace.UsualFor(evaluation), std::nullopt);
}

TEST(RoundPatienceTest, ForWorkIsTenTimesAKnownPaceAndAtLeastTenMinutes) {
  const RoundPatience patience(kLease, kTimeout);
  EXPECT_EQ(patience.ForWork(absl::Milliseconds(50), absl::Hours(9), 0),
            absl::Minutes(10) + 2 * kLease);
  EXPECT_EQ(patience.ForWork(absl::Minutes(2), absl::ZeroDuration(), 0),
            absl::Minutes(20) + 2 * kLease);
}

TEST(RoundPatienceTest, ForWorkOfANewcomerIsAHundredRoundsOfTheOthers) {
  const RoundPatience patience(kLease, kTimeout);
  EXPECT_EQ(patience.ForWork(std::nullopt, absl::Seconds(1), 0), absl::Minutes(15) + 2 * kLease);
  EXPECT_EQ(patience.ForWork(std::nullopt, absl::Seconds(18), 0), absl::Minutes(30) + 2 * kLease);
  EXPECT_EQ(patience.ForWork(std::nullopt, absl::ZeroDuration(), 0), kTimeout)
      << "no round is known";
}

TEST(RoundPatienceTest, ForWorkAndForAskingGrowWithEachDropUpToTheTimeout) {
  const RoundPatience patience(kLease, kTimeout);
  EXPECT_EQ(patience.ForWork(absl::Seconds(1), absl::Seconds(1), 1),
            4 * (absl::Minutes(10) + 2 * kLease));
  EXPECT_EQ(patience.ForWork(absl::Seconds(1), absl::Seconds(1), 2), kTimeout);
  EXPECT_EQ(patience.ForWork(absl::Seconds(1), absl::Seconds(1), 1'000'000), kTimeout);
  EXPECT_EQ(patience.ForWork(absl::Hours(1), absl::Hours(1), 0), kTimeout);
  EXPECT_EQ(patience.ForAsking(0), absl::Minutes(10) + 2 * kLease);
  EXPECT_EQ(patience.ForAsking(9), kTimeout);
  const RoundPatience short_one(kLease, absl::Seconds(3));
  EXPECT_EQ(short_one.ForWork(absl::Seconds(1), absl::Seconds(1), 0), absl::Seconds(3));
}

TEST(RoundPatienceTest, ForTransferIsRenewedByBytesUpToTheTimeout) {
  const RoundPatience patience(kLease, kTimeout);
  const absl::Duration work = patience.ForWork(absl::Seconds(1), absl::Seconds(1), 0);
  EXPECT_EQ(patience.ForTransfer(work, -absl::InfiniteDuration()), work);
  EXPECT_EQ(patience.ForTransfer(work, absl::Minutes(4)), work);
  EXPECT_EQ(patience.ForTransfer(work, absl::Minutes(30)), absl::Minutes(30) + 2 * kLease);
  EXPECT_EQ(patience.ForTransfer(work, absl::Hours(2)), kTimeout);
}

TEST(RoundPatienceTest, ForPathIsFourTimesAsLongBeforeTheFirstReportAndGrowsUpToTenMinutes) {
  const RoundPatience patience(kLease, kTimeout);
  const absl::Duration known = kLease + absl::Seconds(2);
  EXPECT_EQ(patience.ForPath(absl::Seconds(2), /*has_reported=*/true, 3), known);
  EXPECT_EQ(patience.ForPath(absl::Seconds(2), /*has_reported=*/false, 0), 4 * known);
  EXPECT_EQ(patience.ForPath(absl::Seconds(2), /*has_reported=*/false, 1), 16 * known);
  EXPECT_EQ(patience.ForPath(absl::Seconds(2), /*has_reported=*/false, 2), absl::Minutes(10));
  EXPECT_EQ(patience.ForPath(absl::Hours(1), /*has_reported=*/false, 2), absl::Hours(1) + kLease)
      << "rounds take longer than that anyway";
}

TEST(RoundPatienceTest, ForPushGrowsWithThePartThatHasCome) {
  const RoundPatience patience(kLease, kTimeout);
  constexpr absl::Duration kMessage = absl::Minutes(1);
  EXPECT_EQ(patience.ForPush(0, 1 << 20), kMessage);
  EXPECT_EQ(patience.ForPush(1 << 18, 1 << 20), kMessage + kTimeout / 4);
  EXPECT_EQ(patience.ForPush(1 << 20, 1 << 20), kTimeout);
  EXPECT_EQ(patience.ForPush(0, 0), kMessage);
  EXPECT_EQ(RoundPatience(kLease, absl::Seconds(3)).ForPush(0, 1), absl::Seconds(3));
}

// Received bytes are counted in whole messages, so they lag behind the bytes that have come.
TEST(RoundPatienceTest, ForPushIsEnoughForAPushThatKeepsThePace) {
  const RoundPatience patience(kLease, kTimeout);
  constexpr int64_t kTotal = 64 << 20;
  constexpr int64_t kMessage = 1 << 20;
  const absl::Duration for_message = kTimeout * (1.0 * kMessage / kTotal);
  for (int64_t counted = 0; counted < kTotal; counted += kMessage) {
    const absl::Duration next_at = for_message * (counted / kMessage + 1);
    EXPECT_GE(patience.ForPush(counted, kTotal), next_at) << counted;
  }
}

TEST(RoundPatienceTest, ForPushIsEnoughForTenMegabitsAndAnyUsualSize) {
  const RoundPatience patience(kLease, kTimeout);
  constexpr int64_t kHalfOfTheLine = 10'000'000 / 8 / 2;  // two channels share the line
  for (const int64_t total : {int64_t{2} << 20, int64_t{64} << 20}) {
    for (absl::Duration age;; age += absl::Seconds(1)) {
      const int64_t received = kHalfOfTheLine * absl::ToInt64Seconds(age);
      if (received >= total) break;
      // The push has at least half a minute left to send more bytes.
      EXPECT_GT(patience.ForPush(received, total), age + absl::Seconds(30)) << total;
    }
  }
}

}  // namespace
}  // namespace lodestar::stragglers
