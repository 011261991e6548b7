// SPDX-License-Identifier: Apache-2.0

#include "server/site/site_job.h"

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::site {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

messages::Registration Upstream() {
  messages::Registration upstream;
  job::JobSpec& job = upstream.job;
  job.model = *params::ModelPreset("gpt-nano");
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = 20;
  job.optimizer.weight_decay = 0.1;
  job.schedule.total_rounds = 100;
  job.schedule.warmup_rounds = 3;
  job.schedule.peak = 3e-3;
  job.clip_norm = 1.5;
  job.batch_size = 12;
  job.seed = 7;
  job.eval_every = 25;
  job.min_workers = 3;
  job.push_encoding = params::Encoding::kInt8;
  auto map = std::make_shared<messages::ClusterMap>();
  map->layout = *params::BuildLayout(job.model);
  upstream.map = map;
  return upstream;
}

job::JobSpec Asked() {
  job::JobSpec job;
  job.batch_size = 8;
  job.schedule.total_rounds = 1000;
  return job;
}

TEST(SiteJobTest, IsTheInnerTrainingOfTheJobUpstream) {
  const messages::Registration upstream = Upstream();
  job::JobSpec asked = Asked();
  asked.min_workers = 2;
  asked.push_encoding = params::Encoding::kBf16;
  ASSERT_OK_AND_ASSIGN(const job::JobSpec job,
                       SiteJob(upstream, asked, {"min_workers", "push_encoding"}));
  EXPECT_EQ(job.mode, job::Mode::kSync);
  EXPECT_EQ(job.model, upstream.job.model);
  EXPECT_EQ(job.seed, 7);
  EXPECT_EQ(job.optimizer, upstream.job.optimizer);
  EXPECT_EQ(job.clip_norm, 1.5);
  EXPECT_EQ(job.global_batch_size, 12);
  EXPECT_EQ(job.batch_size, 0);
  EXPECT_EQ(job.min_workers, 2);
  EXPECT_EQ(job.push_encoding, params::Encoding::kBf16);
  // The job has 2000 training rounds, evaluations after 25, 50 and 75 rounds of the job upstream,
  // and a last evaluation.
  EXPECT_EQ(job.schedule.total_rounds, 2004);
  EXPECT_EQ(job.schedule.warmup_rounds, 60);
}

TEST(SiteJobTest, MayHaveLocalStepsOfItsOwnThatDivideThoseUpstream) {
  job::JobSpec asked = Asked();
  asked.mode = job::Mode::kLocalSgd;
  asked.local_steps = 5;
  asked.outer_optimizer = job::OuterOptimizerKind::kAverage;
  ASSERT_OK_AND_ASSIGN(const job::JobSpec job,
                       SiteJob(Upstream(), asked, {"mode", "local_steps", "outer_optimizer"}));
  EXPECT_EQ(job.mode, job::Mode::kLocalSgd);
  EXPECT_EQ(job.local_steps, 5);
  EXPECT_EQ(job.outer_optimizer, job::OuterOptimizerKind::kAverage);
  EXPECT_EQ(job.schedule.total_rounds, 404);
}

TEST(SiteJobTest, LocalStepsOfItsOwnDivideEachWindowOfAFragment) {
  job::JobSpec asked = Asked();
  asked.mode = job::Mode::kLocalSgd;
  asked.local_steps = 5;
  messages::Registration upstream = Upstream();
  upstream.job.fragments = 2;
  ASSERT_OK_AND_ASSIGN(const job::JobSpec job, SiteJob(upstream, asked, {"mode", "local_steps"}));
  // There are 100 windows of 10 steps, and four evaluations.
  EXPECT_EQ(job.schedule.total_rounds, 204);
  EXPECT_OK(CheckGoesOn(upstream.job, upstream.job, 5));
  upstream.job.fragments = 3;
  EXPECT_THAT(SiteJob(upstream, asked, {"mode", "local_steps"}),
              StatusIs(kInvalid, HasSubstr("--local_steps=5 contradicts 20 over --fragments=3")));
  EXPECT_THAT(CheckGoesOn(upstream.job, upstream.job, 5),
              StatusIs(kFailedPrecondition, HasSubstr("--local_steps=20 over --fragments=3")));
  // In sync mode, an order of the site has one local step. So local_steps upstream may be any
  // number.
  EXPECT_OK(SiteJob(upstream, Asked(), {}));
}

TEST(SiteJobTest, RefusesByNameWhatContradicts) {
  job::JobSpec asked = Asked();
  asked.clip_norm = 1.0;
  asked.seed = 7;
  asked.model = *params::ModelPreset("mlp");
  EXPECT_THAT(SiteJob(Upstream(), asked, {"clip_norm", "seed", "batch_size", "model"}),
              StatusIs(kInvalid, AllOf(HasSubstr("--clip_norm=1 contradicts 1.5 upstream"),
                                       HasSubstr("--batch_size=8 contradicts 12 upstream"),
                                       HasSubstr("--model=mlp contradicts gpt-nano upstream"),
                                       Not(HasSubstr("--seed=")))));
  asked = Asked();
  asked.pull_encoding = params::Encoding::kInt8;
  EXPECT_THAT(SiteJob(Upstream(), asked, {"pull_encoding"}),
              StatusIs(kInvalid, HasSubstr("--pull_encoding=int8 contradicts fp32")));
  asked = Asked();
  asked.mode = job::Mode::kAsync;
  EXPECT_THAT(SiteJob(Upstream(), asked, {"mode"}),
              StatusIs(kInvalid, HasSubstr("--mode=async cannot be used at a site")));
  asked.mode = job::Mode::kLocalSgd;
  asked.local_steps = 3;
  EXPECT_THAT(SiteJob(Upstream(), asked, {"mode", "local_steps"}),
              StatusIs(kInvalid, HasSubstr("--local_steps=3 contradicts 20 upstream")));
  asked = Asked();
  asked.mode = job::Mode::kLocalSgd;
  asked.local_steps = 5;
  asked.overlap_steps = 2;
  EXPECT_THAT(SiteJob(Upstream(), asked, {"mode", "local_steps", "overlap_steps"}),
              StatusIs(kInvalid, HasSubstr("--overlap_steps")));
  asked = Asked();
  asked.quorum = 1;
  EXPECT_THAT(SiteJob(Upstream(), asked, {"quorum"}),
              StatusIs(kInvalid, HasSubstr("--quorum=1 contradicts 0")));
  asked = Asked();
  asked.min_workers = 13;
  EXPECT_THAT(SiteJob(Upstream(), asked, {"min_workers"}),
              StatusIs(kInvalid, HasSubstr("--min_workers=13")));
}

TEST(SiteJobTest, RefusesJobsThatAreNoneForSites) {
  messages::Registration upstream = Upstream();
  upstream.job.mode = job::Mode::kSync;
  EXPECT_THAT(SiteJob(upstream, Asked(), {}),
              StatusIs(kFailedPrecondition, HasSubstr("--mode=sync")));
  upstream = Upstream();
  upstream.job.model = *params::ModelPreset("client");
  EXPECT_THAT(SiteJob(upstream, Asked(), {}),
              StatusIs(kFailedPrecondition, HasSubstr("--model=client")));
}

TEST(SiteJobTest, SamplesOfAStepThatFollowTheSpeedOfASiteNeedABound) {
  messages::Registration upstream = Upstream();
  upstream.job.balance = job::Balance::kSpeed;
  EXPECT_THAT(SiteJob(upstream, Asked(), {}),
              StatusIs(kFailedPrecondition,
                       AllOf(HasSubstr("--batch_size=12"), HasSubstr("--global_batch_size"))));
  upstream.job.batch_size = 0;
  upstream.job.global_batch_size = 48;
  ASSERT_OK_AND_ASSIGN(const job::JobSpec job, SiteJob(upstream, Asked(), {}));
  EXPECT_EQ(job.global_batch_size, 48);
}

TEST(SiteJobTest, GoesOnWithOtherLearningRatesAndNotWithAnotherOptimizer) {
  const job::JobSpec began = Upstream().job;
  job::JobSpec now = began;
  now.schedule.peak = 1e-4;
  now.schedule.total_rounds = 200;
  now.local_steps = 30;
  EXPECT_OK(CheckGoesOn(began, now, 1));
  now.optimizer.beta2 = 0.9;
  EXPECT_THAT(CheckGoesOn(began, now, 1),
              StatusIs(kFailedPrecondition, HasSubstr("--beta2=0.95 when this site began")));
  now = began;
  now.model = *params::ModelPreset("mlp");
  EXPECT_THAT(CheckGoesOn(began, now, 1),
              StatusIs(kFailedPrecondition, HasSubstr("--model=gpt-nano when this site began")));
}

TEST(SiteJobTest, DoesNotGoOnWithAJobThatIsNoneForSites) {
  const job::JobSpec began = Upstream().job;
  const auto expect_refused = [&](const job::JobSpec& now, absl::string_view words) {
    EXPECT_THAT(CheckGoesOn(began, now, 1),
                StatusIs(kFailedPrecondition, HasSubstr(std::string(words))));
  };
  job::JobSpec now = began;
  now.mode = job::Mode::kSync;
  expect_refused(now, "--mode=sync");
  now = began;
  now.balance = job::Balance::kSpeed;
  expect_refused(now, "--balance=speed");
}

TEST(SiteJobTest, DoesNotGoOnWithLocalStepsThatItsOwnDoNotDivide) {
  const job::JobSpec began = Upstream().job;
  job::JobSpec now = began;
  now.local_steps = 30;
  EXPECT_OK(CheckGoesOn(began, now, 10));
  EXPECT_THAT(CheckGoesOn(began, now, 20),
              StatusIs(kFailedPrecondition, HasSubstr("now have --local_steps=30")));
  now = began;
  now.mode = job::Mode::kAsyncLocalSgd;
  now.balance = job::Balance::kSpeed;
  EXPECT_THAT(CheckGoesOn(now, now, 10),
              StatusIs(kFailedPrecondition, HasSubstr("now have --balance=speed")));
  EXPECT_OK(CheckGoesOn(now, now, 1));
}

}  // namespace
}  // namespace lodestar::site
