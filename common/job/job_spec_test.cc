// SPDX-License-Identifier: Apache-2.0

#include "common/job/job_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace lodestar::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

JobSpec ValidJob() {
  JobSpec job;
  job.model = *params::ModelPreset("mlp");
  job.batch_size = 32;
  job.min_workers = 4;
  job.schedule.total_rounds = 100;
  return job;
}

struct Case {
  std::function<void(JobSpec&)> change;
  std::string expected;
};

void ExpectRefused(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    JobSpec job = ValidJob();
    c.change(job);
    EXPECT_THAT(ValidateJobSpec(job),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.expected)));
  }
}

TEST(ValidateJobSpecTest, AcceptsEachModeWithItsFlags) {
  JobSpec sync = ValidJob();
  sync.quorum = 4;
  EXPECT_OK(ValidateJobSpec(sync));
  JobSpec async = ValidJob();
  async.mode = Mode::kAsync;
  async.max_rounds_ahead = 0;
  async.staleness_scaling = StalenessScaling::kInverse;
  EXPECT_OK(ValidateJobSpec(async));
  JobSpec local = ValidJob();
  local.mode = Mode::kLocalSgd;
  local.local_steps = 500;
  local.batch_size = 0;
  local.global_batch_size = 4;
  local.balance = Balance::kSpeed;
  EXPECT_OK(ValidateJobSpec(local));
  JobSpec async_local = ValidJob();
  async_local.mode = Mode::kAsyncLocalSgd;
  async_local.local_steps = 50;
  async_local.quorum = 8;  // may be more than --min_workers, because members may join later
  async_local.max_staleness = 6;
  async_local.max_rounds_ahead = 2;
  async_local.balance = Balance::kSpeed;
  EXPECT_OK(ValidateJobSpec(async_local));
  EXPECT_TRUE(HasLocalSteps(async_local));
  EXPECT_FALSE(HasRosters(async_local));
}

TEST(ValidateJobSpecTest, AsyncLocalSgdNamesWhatContradictsIt) {
  ExpectRefused({
      {[](JobSpec& j) { j.mode = Mode::kAsyncLocalSgd, j.max_rounds_ahead = 0; },
       "lock step with local steps is --mode=local_sgd"},
      {[](JobSpec& j) {
         j.mode = Mode::kAsyncLocalSgd, j.outer_optimizer = OuterOptimizerKind::kAverage;
       },
       "--outer_optimizer=average is not for --mode=async_local_sgd"},
      {[](JobSpec& j) {
         j.mode = Mode::kAsyncLocalSgd, j.outer_optimizer = OuterOptimizerKind::kAdam;
       },
       "--outer_optimizer=adam is not for --mode=async_local_sgd"},
      {[](JobSpec& j) { j.mode = Mode::kAsyncLocalSgd, j.local_steps = 4, j.fragments = 2; },
       "--fragments=2 has no meaning with --mode=async_local_sgd"},
      {[](JobSpec& j) {
         j.mode = Mode::kAsyncLocalSgd, j.robust_mean.kind = RobustMean::Kind::kMedian;
       },
       "--robust_mean=median has no meaning with --mode=async_local_sgd"},
      {[](JobSpec& j) { j.max_staleness = 3; },
       "--max_staleness=3 has no meaning with --mode=sync"},
      {[](JobSpec& j) { j.mode = Mode::kAsync, j.balance = Balance::kSpeed; },
       "--balance=speed has no meaning with --mode=async"},
      {[](JobSpec& j) {
         j.mode = Mode::kLocalSgd, j.momentum_correction = MomentumCorrectionKind::kHeloco;
       },
       "--momentum_correction=heloco has no meaning with --mode=local_sgd"},
      {[](JobSpec& j) {
         j.mode = Mode::kAsyncLocalSgd, j.outer_optimizer = OuterOptimizerKind::kSgd;
         j.momentum_correction = MomentumCorrectionKind::kHeloco;
       },
       "--momentum_correction=heloco needs an outer momentum, and --outer_optimizer=sgd"},
      {[](JobSpec& j) { j.mode = Mode::kLocalSgd, j.anchor = Anchor::kServer; },
       "--anchor=server has no meaning with --mode=local_sgd"},
      {[](JobSpec& j) {
         j.mode = Mode::kAsyncLocalSgd, j.anchor = Anchor::kServer;
         j.push_encoding = params::Encoding::kInt4;
       },
       "--anchor=server contradicts --push_encoding=int4"},
      {[](JobSpec& j) {
         j.mode = Mode::kAsyncLocalSgd, j.anchor = Anchor::kServer;
         j.pull_encoding = params::Encoding::kBf16;
       },
       "--anchor=server contradicts --pull_encoding=bf16"},
  });
  JobSpec job = ValidJob();
  job.mode = Mode::kAsyncLocalSgd;
  job.momentum_correction = MomentumCorrectionKind::kHeloco;
  EXPECT_OK(ValidateJobSpec(job));
  EXPECT_FALSE(IsAnchoredAtServer(job));
  job.anchor = Anchor::kServer;
  EXPECT_OK(ValidateJobSpec(job));
  EXPECT_TRUE(IsAnchoredAtServer(job));
}

TEST(ValidateJobSpecTest, ReduceIsForRoundsOfProgramsThatGetTheWholeMean) {
  JobSpec job = ValidJob();
  job.optimizer.kind = OptimizerKind::kReduce;
  const auto refusal = [&] { return std::string(ValidateJobSpec(job).message()); };
  EXPECT_THAT(refusal(), HasSubstr("--optimizer=reduce is not for the model 'mlp'"));
  job.model = {"client", params::ClientModelSpec{}};
  EXPECT_OK(ValidateJobSpec(job));
  job.push_encoding = params::Encoding::kInt8;
  job.clip_norm = 1.0;
  EXPECT_OK(ValidateJobSpec(job));
  job.pull_encoding = params::Encoding::kBf16;
  EXPECT_THAT(refusal(), HasSubstr("contradicts --pull_encoding=bf16"));
  job.pull_encoding = params::Encoding::kFp32;
  for (const Mode mode : {Mode::kAsync, Mode::kLocalSgd}) {
    job.mode = mode;
    EXPECT_THAT(refusal(), HasSubstr(absl::StrCat("no meaning with --mode=", NameOf(mode))));
  }
}

TEST(ValidateJobSpecTest, RatesOfProgramsAreForProgramsThatBringTheModel) {
  JobSpec job = ValidJob();
  job.schedule.kind = ScheduleKind::kProgram;
  const auto refusal = [&] { return std::string(ValidateJobSpec(job).message()); };
  EXPECT_THAT(refusal(), HasSubstr("--lr_schedule=program"));
  job.model = {"client", params::ClientModelSpec{}};
  EXPECT_OK(ValidateJobSpec(job));
  EXPECT_TRUE(TakesProgramRates(job));
  job.optimizer.kind = OptimizerKind::kReduce;
  EXPECT_OK(ValidateJobSpec(job));
  EXPECT_FALSE(TakesProgramRates(job)) << "programs make the steps";
  job.optimizer.kind = OptimizerKind::kAdamW;
  job.mode = Mode::kLocalSgd;
  EXPECT_OK(ValidateJobSpec(job));
  EXPECT_FALSE(TakesProgramRates(job)) << "programs make the steps";
  job.mode = Mode::kAsync;
  EXPECT_THAT(refusal(), HasSubstr("--lr_schedule=program"));
  job.mode = Mode::kSync;
  job.schedule.peak = 0.0;
  EXPECT_THAT(refusal(), HasSubstr("--learning_rate=0"));
}

TEST(ValidateJobSpecTest, ARobustMeanNeedsRoundsOfEnoughAndNotTooMany) {
  JobSpec job = ValidJob();
  job.robust_mean = {RobustMean::Kind::kTrimmed, 1};
  for (const Mode mode : {Mode::kSync, Mode::kLocalSgd}) {
    job.mode = mode;
    EXPECT_OK(ValidateJobSpec(job));
  }
  job.mode = Mode::kAsync;
  job.max_rounds_ahead = 0;
  EXPECT_OK(ValidateJobSpec(job));
  ExpectRefused({
      {[](JobSpec& j) { j.mode = Mode::kAsync, j.robust_mean.kind = RobustMean::Kind::kMedian; },
       "--robust_mean=median has no meaning with --mode=async"},
      {[](JobSpec& j) {
         j.min_workers = 33, j.robust_mean = {RobustMean::Kind::kTrimmed, 2};
       },
       "--robust_mean=trimmed:2 combines at most 32 contributions, but --min_workers=33"},
      {[](JobSpec& j) {
         j.quorum = 4, j.robust_mean = {RobustMean::Kind::kTrimmed, 2};
       },
       "--robust_mean=trimmed:2 needs 5 contributions per round, but --quorum=4"},
      {[](JobSpec& j) {
         j.robust_mean = {RobustMean::Kind::kTrimmed, 0};
       },
       "--robust_mean=trimmed:0 trims nothing"},
  });
}

TEST(HasRostersTest, OnlyAsynchronousRoundsAheadOfEachOtherHaveNone) {
  JobSpec job = ValidJob();
  for (const Mode mode : {Mode::kSync, Mode::kLocalSgd}) {
    job.mode = mode;
    EXPECT_TRUE(HasRosters(job));
  }
  job.mode = Mode::kAsync;
  for (const int rounds_ahead : {-1, 1, 5}) {
    job.max_rounds_ahead = rounds_ahead;
    EXPECT_FALSE(HasRosters(job)) << rounds_ahead;
  }
  job.max_rounds_ahead = 0;
  EXPECT_TRUE(HasRosters(job));
}

JobSpec LocalSgdJob() {
  JobSpec job = ValidJob();
  job.mode = Mode::kLocalSgd;
  job.local_steps = 12;
  return job;
}

TEST(ValidateJobSpecTest, OverlapIsForLocalStepsAndFitsBetweenExchanges) {
  JobSpec job = LocalSgdJob();
  EXPECT_FALSE(DefersContributions(job));
  job.fragments = 4;
  job.overlap_steps = 3;
  EXPECT_OK(ValidateJobSpec(job));
  EXPECT_TRUE(DefersContributions(job));
  job = LocalSgdJob();
  job.overlap_rounds = true;
  EXPECT_OK(ValidateJobSpec(job));
  EXPECT_TRUE(DefersContributions(job));
  const auto refusal = [](void (*change)(JobSpec&)) {
    JobSpec refused = LocalSgdJob();
    change(refused);
    return std::string(ValidateJobSpec(refused).message());
  };
  EXPECT_THAT(refusal([](JobSpec& j) { j.fragments = 2, j.mode = Mode::kSync, j.local_steps = 1; }),
              HasSubstr("--fragments=2 has no meaning with --mode=sync"));
  EXPECT_THAT(refusal([](JobSpec& j) {
                j.overlap_rounds = true, j.mode = Mode::kAsync, j.local_steps = 1;
              }),
              HasSubstr("--overlap_rounds=true has no meaning with --mode=async"));
  EXPECT_THAT(refusal([](JobSpec& j) { j.fragments = 13; }),
              HasSubstr("--fragments=13 exceeds --local_steps=12"));
  EXPECT_THAT(refusal([](JobSpec& j) { j.fragments = 65; }), HasSubstr("--fragments=65"));
  EXPECT_THAT(refusal([](JobSpec& j) { j.fragments = 5, j.overlap_steps = 3; }),
              HasSubstr("--overlap_steps=3 exceeds the 2 steps between two exchanges"));
  EXPECT_THAT(refusal([](JobSpec& j) { j.merge_alpha = 1.5; }), HasSubstr("--merge_alpha=1.5"));
  EXPECT_THAT(refusal([](JobSpec& j) { j.overlap_rounds = true, j.fragments = 2; }),
              HasSubstr("contradicts --fragments=2"));
  for (const OuterOptimizerKind outer : {OuterOptimizerKind::kAverage, OuterOptimizerKind::kAdam}) {
    JobSpec refused = LocalSgdJob();
    refused.overlap_rounds = true;
    refused.outer_optimizer = outer;
    EXPECT_THAT(ValidateJobSpec(refused), StatusIs(absl::StatusCode::kInvalidArgument,
                                                   HasSubstr(absl::StrCat("not ", NameOf(outer)))));
  }
  EXPECT_THAT(refusal([](JobSpec& j) {
                j.overlap_steps = 1;
                j.model = {"client", params::ClientModelSpec{}};
              }),
              HasSubstr("--overlap_steps=1 is not for --model=client"));
}

TEST(ValidateJobSpecTest, ElasticWorkersHaveTheirOwnWeights) {
  JobSpec job = LocalSgdJob();
  job.outer_optimizer = OuterOptimizerKind::kEasgd;
  job.outer_learning_rate = 0.9;
  EXPECT_OK(ValidateJobSpec(job));
  EXPECT_TRUE(IsElastic(job));
  EXPECT_TRUE(DefersContributions(job));
  job.fragments = 4;
  EXPECT_OK(ValidateJobSpec(job));
  job.fragments = 1;
  const auto refusal = [&job](void (*change)(JobSpec&)) {
    JobSpec refused = job;
    change(refused);
    return std::string(ValidateJobSpec(refused).message());
  };
  EXPECT_THAT(refusal([](JobSpec& j) { j.outer_learning_rate = 1.5; }),
              HasSubstr("--outer_learning_rate=1.5 is out of range"));
  EXPECT_THAT(refusal([](JobSpec& j) { j.overlap_steps = 2; }),
              HasSubstr("--overlap_steps=2 contradicts --outer_optimizer=easgd"));
  EXPECT_THAT(refusal([](JobSpec& j) { j.overlap_rounds = true; }), HasSubstr("not easgd"));
  EXPECT_THAT(refusal([](JobSpec& j) { j.mode = Mode::kAsyncLocalSgd; }),
              HasSubstr("--outer_optimizer=easgd is not for --mode=async_local_sgd"));
  EXPECT_THAT(refusal([](JobSpec& j) {
                j.model = {"client", params::ClientModelSpec{}};
              }),
              HasSubstr("--outer_optimizer=easgd is not for --model=client"));
  EXPECT_THAT(refusal([](JobSpec& j) { j.outer_reduction = OuterReduction::kDirection; }),
              HasSubstr("contradicts --outer_optimizer=easgd"));
  // In modes where the outer optimizer has no effect, kEasgd does not matter.
  job.mode = Mode::kSync;
  job.local_steps = 1;
  EXPECT_FALSE(IsElastic(job));
  EXPECT_OK(ValidateJobSpec(job));
}

TEST(ValidateJobSpecTest, RefusesFlagsOfAnotherMode) {
  ExpectRefused({
      {[](JobSpec& j) { j.quorum = 5; }, "--quorum=5 exceeds --min_workers=4"},
      {[](JobSpec& j) { j.mode = Mode::kAsync, j.quorum = 2; },
       "--quorum=2 has no meaning with --mode=async"},
      {[](JobSpec& j) { j.max_rounds_ahead = 3; }, "--max_rounds_ahead=3 has no meaning"},
      {[](JobSpec& j) { j.staleness_scaling = StalenessScaling::kInverse; },
       "--staleness_scaling=inverse has no meaning"},
      {[](JobSpec& j) { j.local_steps = 2; }, "--local_steps=2 has no meaning"},
  });
}

TEST(ValidateJobSpecTest, RefusesNumbersOutOfRange) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  ExpectRefused({
      {[](JobSpec& j) {
         j.model = {"m", params::MlpSpec{{3}}};
       },
       "mlp widths"},
      {[](JobSpec& j) { j.min_workers = 0; }, "--min_workers=0"},
      {[](JobSpec& j) { j.keep_workers = 0; }, "--keep_workers=0"},
      {[](JobSpec& j) { j.keep_workers = 5; }, "--keep_workers=5"},
      {[](JobSpec& j) { j.quorum = -1; }, "--quorum=-1"},
      {[](JobSpec& j) { j.max_rounds_ahead = -2; }, "--max_rounds_ahead=-2"},
      {[](JobSpec& j) { j.local_steps = 0; }, "--local_steps=0"},
      {[](JobSpec& j) { j.outer_learning_rate = -1; }, "--outer_learning_rate=-1"},
      {[](JobSpec& j) { j.outer_momentum = 1; }, "--outer_momentum=1"},
      {[](JobSpec& j) { j.outer_beta2 = kNan; }, "--outer_beta2=nan"},
      {[](JobSpec& j) { j.outer_epsilon = 0; }, "--outer_epsilon=0"},
      {[](JobSpec& j) { j.optimizer.momentum = kNan; }, "--momentum=nan"},
      {[](JobSpec& j) { j.optimizer.beta1 = -0.5; }, "--beta1=-0.5"},
      {[](JobSpec& j) { j.optimizer.beta2 = 1.5; }, "--beta2=1.5"},
      {[](JobSpec& j) { j.optimizer.epsilon = 0; }, "--epsilon=0"},
      {[](JobSpec& j) { j.optimizer.weight_decay = kNan; }, "--weight_decay=nan"},
      {[](JobSpec& j) { j.schedule.total_rounds = 0; }, "--rounds=0"},
      {[](JobSpec& j) { j.schedule.peak = -1; }, "--learning_rate=-1"},
      {[](JobSpec& j) { j.schedule.minimum = 1; }, "--min_learning_rate=1 exceeds"},
      {[](JobSpec& j) { j.schedule.warmup_rounds = 101; }, "--warmup_rounds=101 exceeds"},
      {[](JobSpec& j) { j.clip_norm = -1; }, "--clip_norm=-1"},
      // These values would overflow or vanish in fp32.
      {[](JobSpec& j) { j.schedule.peak = 1e300; }, "--learning_rate=1e+300"},
      {[](JobSpec& j) { j.outer_learning_rate = 1e39; }, "--outer_learning_rate=1e+39"},
      {[](JobSpec& j) { j.optimizer.weight_decay = 1e39; }, "--weight_decay=1e+39"},
      {[](JobSpec& j) { j.optimizer.epsilon = 1e-60; }, "--epsilon=1e-60"},
      // These values are too large for a worker's memory or for a message.
      {[](JobSpec& j) { j.batch_size = int64_t{1} << 32; }, "--batch_size=4294967296"},
      {[](JobSpec& j) { j.batch_size = 0, j.global_batch_size = int64_t{1} << 32; },
       "--global_batch_size=4294967296"},
      {[](JobSpec& j) { j.mode = Mode::kLocalSgd, j.local_steps = 1 << 20; },
       "--local_steps=1048576"},
      {[](JobSpec& j) { j.eval_every = -1; }, "--eval_every=-1"},
      {[](JobSpec& j) { j.eval_samples = -1; }, "--eval_samples=-1"},
      {[](JobSpec& j) { j.bucket_bytes = 3; }, "--bucket_bytes=3"},
  });
}

TEST(ValidateJobSpecTest, WantsExactlyOneBatchSize) {
  ExpectRefused({
      {[](JobSpec& j) { j.batch_size = 0; }, "--batch_size=0 needs --global_batch_size"},
      {[](JobSpec& j) { j.global_batch_size = 8; }, "contradicts --global_batch_size=8"},
      {[](JobSpec& j) { j.batch_size = 0, j.global_batch_size = 3; },
       "--global_batch_size=3 is below --min_workers=4"},
      {[](JobSpec& j) { j.batch_size = -1; }, "--batch_size=-1"},
  });
}

template <typename Kind>
void ExpectNamesGoBothWays(const std::vector<std::string>& names, const std::string& flag) {
  for (const std::string& name : names) {
    const auto kind = ParseKind<Kind>(name);
    ASSERT_THAT(kind, IsOk());
    EXPECT_EQ(NameOf(*kind), name);
  }
  EXPECT_THAT(ParseKind<Kind>("bogus"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::AllOf(HasSubstr("--" + flag + "=bogus"), HasSubstr(names[0]))));
}

TEST(JobSpecNamesTest, GoBothWays) {
  ExpectNamesGoBothWays<Mode>({"sync", "async", "local_sgd", "async_local_sgd"}, "mode");
  ExpectNamesGoBothWays<OptimizerKind>({"sgd", "momentum", "nesterov", "adamw", "reduce"},
                                       "optimizer");
  ExpectNamesGoBothWays<OuterOptimizerKind>({"average", "sgd", "nesterov", "adam", "easgd"},
                                            "outer_optimizer");
  ExpectNamesGoBothWays<StalenessScaling>({"none", "inverse"}, "staleness_scaling");
}

JobSpec TopKJob() {
  JobSpec job = ValidJob();
  job.push_encoding = params::Encoding::TopK(64, 2);
  job.feedback_decay = DefaultFeedbackDecay(job.push_encoding);
  return job;
}

TEST(JobSpecTopKTest, IsOfContributionsWithErrorFeedback) {
  EXPECT_OK(ValidateJobSpec(TopKJob()));
  JobSpec job = TopKJob();
  job.pull_encoding = params::Encoding::kInt4;
  EXPECT_OK(ValidateJobSpec(job));
  job.pull_encoding = params::Encoding::TopK(64, 2);
  EXPECT_THAT(ValidateJobSpec(job),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--pull_encoding=topk"), HasSubstr("Use int4"))));
  job = TopKJob();
  job.error_feedback = false;
  EXPECT_THAT(ValidateJobSpec(job),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs --error_feedback")));
  job = TopKJob();
  job.robust_mean = *ParseRobustMean("median");
  EXPECT_THAT(ValidateJobSpec(job), StatusIs(absl::StatusCode::kInvalidArgument,
                                             AllOf(HasSubstr("--push_encoding=topk"),
                                                   HasSubstr("--robust_mean=median"))));
  job = TopKJob();
  job.push_encoding = params::Encoding::TopK(1025, 2);
  EXPECT_THAT(ValidateJobSpec(job),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--topk=1025")));
}

TEST(JobSpecTopKTest, DecayIsAboveZeroAndAtMostOne) {
  JobSpec job = TopKJob();
  EXPECT_EQ(job.feedback_decay, 0.95);
  EXPECT_EQ(DefaultFeedbackDecay(params::Encoding::kInt8), 1.0);
  for (const double decay : {0.0, -0.5, 1.01, std::nan("")}) {
    job.feedback_decay = decay;
    EXPECT_THAT(ValidateJobSpec(job),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--feedback_decay=")));
  }
}

TEST(ValidateJobSpecTest, MeanDirectionsNeedRoundsOfChanges) {
  JobSpec job = TopKJob();
  job.mode = Mode::kLocalSgd;
  job.outer_reduction = OuterReduction::kDirection;
  EXPECT_OK(ValidateJobSpec(job));
  EXPECT_TRUE(AveragesDirections(job));
  EXPECT_FALSE(AveragesDirections(TopKJob()));
  const struct {
    void (*change)(JobSpec&);
    const char* reason;
  } refused[] = {
      {[](JobSpec& j) { j.mode = Mode::kSync; }, "has no meaning with --mode=sync"},
      {[](JobSpec& j) { j.mode = Mode::kAsyncLocalSgd; },
       "has no meaning with --mode=async_local_sgd"},
      {[](JobSpec& j) { j.outer_optimizer = OuterOptimizerKind::kAverage; },
       "contradicts --outer_optimizer=average"},
      {[](JobSpec& j) {
         j.push_encoding = params::Encoding::kInt8, j.robust_mean = *ParseRobustMean("median");
       },
       "contradicts --robust_mean=median"},
      {[](JobSpec& j) { j.topk_divisor = TopKDivisor::kSenders; },
       "contradicts --topk_divisor=senders"},
      {[](JobSpec& j) { j.overlap_rounds = true; }, "contradicts --overlap_rounds"},
  };
  for (const auto& [change, reason] : refused) {
    JobSpec other = job;
    change(other);
    EXPECT_THAT(ValidateJobSpec(other),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("--outer_reduction=direction"), HasSubstr(reason))));
  }
  EXPECT_THAT(ParseKind<OuterReduction>("direction"), IsOkAndHolds(OuterReduction::kDirection));
  EXPECT_THAT(ParseKind<OuterReduction>("sum").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mean, direction")));
}

TEST(JobSpecTopKTest, SendersDivideWhereThereAreRounds) {
  JobSpec job = TopKJob();
  EXPECT_FALSE(DividesBySenders(job));
  job.topk_divisor = TopKDivisor::kSenders;
  EXPECT_TRUE(DividesBySenders(job));
  job.mode = Mode::kAsync;
  EXPECT_FALSE(DividesBySenders(job));
  job.mode = Mode::kSync;
  job.push_encoding = params::Encoding::kInt8;
  EXPECT_FALSE(DividesBySenders(job));
  EXPECT_THAT(ParseKind<TopKDivisor>("senders"), IsOkAndHolds(TopKDivisor::kSenders));
  EXPECT_THAT(ParseKind<TopKDivisor>("all").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("workers, senders")));
}

}  // namespace
}  // namespace lodestar::job
