#include "worker/trainer/grant_samples.h"

#include <set>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

TEST(GrantSamplesTest, LocalStepsCoverTheGrantOnceInOrder) {
  for (const int64_t num_samples : {1, 7, 12, 240}) {
    for (const int steps : {1, 2, 5, 7}) {
      if (num_samples < steps) continue;
      Grant grant;
      grant.first_sample = 1000;
      grant.first_position = 5000;
      grant.num_samples = num_samples;
      grant.local_steps = steps;
      int64_t next = 1000;
      for (int step = 0; step < steps; ++step) {
        const SampleSpan span = SamplesOfStep(grant, step);
        EXPECT_EQ(span.first, next);
        EXPECT_EQ(span.first_position, next + 4000);
        EXPECT_GE(span.count, 1);
        next += span.count;
      }
      EXPECT_EQ(next, 1000 + num_samples);
    }
  }
}

TEST(GrantSamplesTest, EvaluationSetNamesDifferentSamplesAcrossTheHeldOutData) {
  std::set<int64_t> samples;
  for (int64_t k = 0; k < 100; ++k) samples.insert(HeldoutSampleAt(k, 100, 257));
  EXPECT_EQ(samples.size(), 100u);
  EXPECT_EQ(*samples.begin(), 0);
  EXPECT_LT(*samples.rbegin(), 257);
  EXPECT_GT(*samples.rbegin(), 250);
}

TEST(GrantSamplesTest, HugeHeldOutSetDoesNotOverflow) {
  const int64_t huge = int64_t{1} << 60;
  EXPECT_EQ(HeldoutSampleAt(huge - 1, huge, huge), huge - 1);
}

}  // namespace
}  // namespace lodestar
