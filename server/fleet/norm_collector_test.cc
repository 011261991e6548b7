#include "server/fleet/norm_collector.h"

#include <optional>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

struct Answer {
  std::optional<absl::StatusOr<double>> value;
  NormCollector::DoneCallback callback() {
    return [this](absl::StatusOr<double> total) { value = std::move(total); };
  }
};

TEST(NormCollectorTest, SumsSegmentsInOrderOfShardWhateverTheOrderOfArrival) {
  // 1e16 + 1 loses the 1; so the order of the sum shows in the result.
  NormCollector collector(2);
  Answer first, second;
  collector.Submit(Round(0), 1, {1.0, -1e16}, second.callback());
  EXPECT_FALSE(second.value.has_value());
  collector.Submit(Round(0), 0, {1e16}, first.callback());
  ASSERT_TRUE(first.value.has_value());
  EXPECT_EQ(**first.value, (1e16 + 1.0) - 1e16);
  EXPECT_EQ(**second.value, **first.value);
}

TEST(NormCollectorTest, RoundsDoNotMix) {
  NormCollector collector(2);
  Answer a, b;
  collector.Submit(Round(1), 0, {1.0}, a.callback());
  collector.Submit(Round(2), 1, {2.0}, b.callback());
  EXPECT_FALSE(a.value.has_value());
  EXPECT_FALSE(b.value.has_value());
}

TEST(NormCollectorTest, RepeatAfterTheTotalGetsTheSameTotal) {
  NormCollector collector(1);
  Answer first, repeat;
  collector.Submit(Round(3), 0, {2.0}, first.callback());
  collector.Submit(Round(3), 0, {2.0}, repeat.callback());
  EXPECT_EQ(**repeat.value, 2.0);
}

TEST(NormCollectorTest, RepeatBeforeTheTotalReplacesTheFirst) {
  NormCollector collector(2);
  Answer lost, again, other;
  collector.Submit(Round(0), 0, {2.0}, lost.callback());
  collector.Submit(Round(0), 0, {2.0}, again.callback());
  EXPECT_TRUE(absl::IsAborted(lost.value->status()));
  collector.Submit(Round(0), 1, {3.0}, other.callback());
  EXPECT_EQ(**again.value, 5.0);
}

TEST(NormCollectorTest, ResetAnswersThoseWhoWaitAndForgets) {
  NormCollector collector(2);
  Answer waiting, anew;
  collector.Submit(Round(0), 0, {2.0}, waiting.callback());
  collector.Reset(absl::AbortedError("new start"));
  EXPECT_TRUE(absl::IsAborted(waiting.value->status()));
  collector.Submit(Round(0), 1, {3.0}, anew.callback());
  EXPECT_FALSE(anew.value.has_value());
  Answer late;
  collector.Close(absl::UnavailableError("stopping"));
  collector.Submit(Round(1), 0, {1.0}, late.callback());
  EXPECT_TRUE(absl::IsUnavailable(late.value->status()));
}

}  // namespace
}  // namespace lodestar
