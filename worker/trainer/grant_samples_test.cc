// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/grant_samples.h"

#include <set>
#include <string>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::trainer {
namespace {

TEST(GrantSamplesTest, LocalStepsCoverTheGrantOnceInOrder) {
  for (const int64_t num_samples : {1, 7, 12, 240}) {
    for (const int steps : {1, 2, 5, 7}) {
      if (num_samples < steps) continue;
      messages::Grant grant;
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

class NoData final : public data::Dataset {
 public:
  explicit NoData(int64_t num_heldout) : num_heldout_(num_heldout) {}
  int64_t num_train_samples() const override { return 1; }
  int64_t num_heldout_samples() const override { return num_heldout_; }
  int64_t tokens_per_sample() const override { return 1; }
  const std::string& fingerprint() const override { return fingerprint_; }
  std::string Describe() const override { return ""; }
  absl::Status ReadTrain(absl::Span<const data::SampleRef>, data::HostBatch*) const override {
    return absl::OkStatus();
  }
  absl::Status ReadHeldout(absl::Span<const int64_t>, data::HostBatch*) const override {
    return absl::OkStatus();
  }

 private:
  const int64_t num_heldout_;
  const std::string fingerprint_;
};

TEST(GrantSamplesTest, AGrantThatTheJobCannotMeanIsRefusedBeforeItIsRead) {
  job::JobSpec job;
  job.batch_size = 8;
  job.local_steps = 3;
  const NoData dataset(/*num_heldout=*/5);
  messages::Grant good;
  good.num_samples = 24;
  good.local_steps = 3;
  good.learning_rates = {0.1, 0.1, 0.1};
  good.num_heldout_samples = good.evaluation_set_size = 5;
  EXPECT_OK(CheckGrant(good, job, dataset));
  const auto refused = [&](void (*spoil)(messages::Grant&)) {
    messages::Grant grant = good;
    spoil(grant);
    EXPECT_THAT(CheckGrant(grant, job, dataset), StatusIs(absl::StatusCode::kFailedPrecondition));
  };
  refused([](messages::Grant& grant) { grant.num_samples = 25; });
  refused([](messages::Grant& grant) { grant.num_samples = 2; });
  refused([](messages::Grant& grant) { grant.num_samples = int64_t{1} << 40; });
  refused([](messages::Grant& grant) {
    grant.local_steps = 4;
    grant.learning_rates.push_back(0.1);
  });
  refused([](messages::Grant& grant) { grant.learning_rates.pop_back(); });
  EXPECT_THAT(CheckGrant(good, job, NoData(/*num_heldout=*/0)),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("has none")));
  messages::Grant evaluation;
  evaluation.kind = messages::Grant::Kind::kEvaluate;
  EXPECT_OK(CheckGrant(evaluation, job, NoData(/*num_heldout=*/0)));
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

TEST(GrantSamplesTest, BySpeedSharesOfAStepOrNumbersOfStepsDiffer) {
  const NoData dataset(/*num_heldout=*/0);
  messages::Grant grant;
  grant.num_samples = 40;
  grant.local_steps = 2;
  grant.learning_rates = {0.1, 0.1};
  const auto check = [&](job::Mode mode, job::Balance balance, int64_t batch_size,
                         int local_steps) {
    job::JobSpec job;
    job.mode = mode;
    job.balance = balance;
    job.batch_size = batch_size;
    job.local_steps = local_steps;
    return CheckGrant(grant, job, dataset);
  };
  EXPECT_OK(check(job::Mode::kLocalSgd, job::Balance::kSpeed, 8, 2));
  EXPECT_FALSE(check(job::Mode::kLocalSgd, job::Balance::kEqual, 8, 2).ok());
  EXPECT_FALSE(check(job::Mode::kLocalSgd, job::Balance::kSpeed, 20, 5).ok());
  EXPECT_OK(check(job::Mode::kAsyncLocalSgd, job::Balance::kSpeed, 20, 5));
  EXPECT_FALSE(check(job::Mode::kAsyncLocalSgd, job::Balance::kEqual, 20, 5).ok());
  EXPECT_FALSE(check(job::Mode::kAsyncLocalSgd, job::Balance::kSpeed, 8, 5).ok());
  EXPECT_FALSE(check(job::Mode::kAsyncLocalSgd, job::Balance::kSpeed, 20, 1).ok());
}

}  // namespace
}  // namespace lodestar::trainer
