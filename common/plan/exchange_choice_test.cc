// SPDX-License-Identifier: Apache-2.0

#include "common/plan/exchange_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/job/outer_step.h"
#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "common/plan/exchange_forecast.h"
#include "common/plan/exchange_sizes.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::plan {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kMegabit = 1e6 / 8;

job::JobSpec Base(const std::string& preset) {
  job::JobSpec job;
  job.model = *params::ModelPreset(preset);
  job.batch_size = 8;
  return job;
}

ExchangeFacts Links(int num_workers, double megabits, absl::Duration round_trip) {
  ExchangeFacts facts;
  facts.num_workers = num_workers;
  const double rate = megabits * kMegabit;
  facts.path = {.worker_up = rate,
                .worker_down = rate,
                .server_up = rate,
                .server_down = rate,
                .round_trip = round_trip};
  facts.step = absl::Milliseconds(300);
  return facts;
}

ExchangeChoice Choose(const std::string& preset, const ExchangeFacts& facts,
                      const ExchangeBounds& bounds = {}) {
  const job::JobSpec base = Base(preset);
  return *ChooseExchange(base, *params::BuildLayout(base.model), /*num_servers=*/1, facts, bounds);
}

const ExchangeOption& Chosen(const ExchangeChoice& choice) { return choice.options[choice.chosen]; }

TEST(ExchangeChoiceTest, OverAFastNetworkItIsSynchronousAndExact) {
  const ExchangeChoice choice = Choose("gpt-nano", Links(4, 10'000, absl::Milliseconds(1)));
  EXPECT_TRUE(choice.is_met);
  EXPECT_EQ(Chosen(choice).name, "sync, fp32");
  EXPECT_EQ(Chosen(choice).loss.percent, 0.0);
  EXPECT_THAT(ExchangeFlags(Chosen(choice).job), ElementsAre("--mode=sync"));
}

TEST(ExchangeChoiceTest, OuterStepsAreSafe) {
  bool has_local_steps = false;
  for (const double megabits : {10.0, 100.0}) {
    ExchangeFacts facts = Links(2, megabits, absl::Milliseconds(50));
    facts.step = absl::Milliseconds(50);
    for (const ExchangeOption& option : Choose("gpt-nano", facts).options) {
      has_local_steps |= job::HasLocalSteps(option.job);
      EXPECT_FALSE(job::IsOuterStepLong(option.job)) << option.name;
    }
  }
  EXPECT_TRUE(has_local_steps);
}

// If the processors are the limit, fewer exchanges save some time but raise the loss. So the best
// choice is still sync.
TEST(ExchangeChoiceTest, SyncIsPreferredUnlessTheLinksForbidIt) {
  const ExchangeBounds bounds = {.prefers_sync = true};
  ExchangeFacts facts;
  facts.num_workers = 2;
  facts.step = absl::Milliseconds(14);
  EXPECT_EQ(Chosen(Choose("gpt-nano", facts)).job.mode, job::Mode::kLocalSgd);
  const ExchangeChoice on_one_machine = Choose("gpt-nano", facts, bounds);
  EXPECT_EQ(Chosen(on_one_machine).name, "sync, fp32") << on_one_machine.reason;
  EXPECT_TRUE(on_one_machine.is_met);
  facts = Links(2, 10, absl::Milliseconds(50));
  facts.step = absl::Milliseconds(14);
  const ExchangeChoice over_a_slow_link = Choose("gpt-nano", facts, bounds);
  EXPECT_FALSE(over_a_slow_link.is_sync_that_links_allow);
  EXPECT_EQ(over_a_slow_link.reason, Choose("gpt-nano", facts).reason);
}

TEST(ExchangeChoiceTest, OverASlowOneItReachesWhatIsAskedWithinTheBounds) {
  const ExchangeBounds bounds = {.loss_percent = 3.0};
  const ExchangeChoice choice = Choose("gpt2-124m", Links(4, 100, absl::Milliseconds(50)), bounds);
  EXPECT_TRUE(choice.is_met) << choice.reason;
  const ExchangeOption& chosen = Chosen(choice);
  EXPECT_EQ(chosen.job.mode, job::Mode::kLocalSgd);
  EXPECT_GE(chosen.forecast.utilisation(), bounds.utilisation - 1e-3);
  EXPECT_LE(*chosen.loss.percent, bounds.loss_percent);
  EXPECT_LE(chosen.job.local_steps, bounds.max_local_steps);
  EXPECT_LE(chosen.job.overlap_steps, bounds.max_overlap_steps);
  EXPECT_EQ(chosen.job.min_workers, 4);
  EXPECT_OK(job::ValidateJobSpec(chosen.job));
  EXPECT_THAT(choice.reason, AllOf(HasSubstr(chosen.name), HasSubstr("least loss")));
}

TEST(ExchangeChoiceTest, NothingThatReachesAsMuchCostsLess) {
  for (const double megabits : {10.0, 100.0, 1000.0, 100'000.0}) {
    const ExchangeChoice choice = Choose("gpt-mini", Links(2, megabits, absl::Milliseconds(20)));
    ASSERT_TRUE(choice.is_met) << megabits << ": " << choice.reason;
    for (const ExchangeOption& option : choice.options) {
      if (!option.protects_loss || !option.has_spare) continue;
      if (option.job.mode == job::Mode::kAsyncLocalSgd) continue;
      EXPECT_GE(*option.loss.percent, *Chosen(choice).loss.percent) << option.name;
    }
  }
}

TEST(ExchangeChoiceTest, PrefersWhatReachesItIfExchangesTakeLonger) {
  ExchangeFacts facts = Links(2, 10, absl::ZeroDuration());
  facts.step = absl::Milliseconds(50);
  const ExchangeChoice tight = Choose("gpt-nano", facts, {.spare = 0.0});
  const ExchangeChoice choice = Choose("gpt-nano", facts);
  ASSERT_TRUE(tight.is_met && choice.is_met) << choice.reason;
  EXPECT_TRUE(Chosen(choice).has_spare);
  EXPECT_LT(Chosen(tight).forecast.utilisation(), Chosen(choice).forecast.utilisation());
  // Over slower links, the option that was chosen without spare time does not reach the
  // utilisation.
  ExchangeFacts slower = facts;
  slower.path.server_up /= 1.25;
  slower.path.server_down /= 1.25;
  const job::JobSpec& job = Chosen(tight).job;
  const params::Layout layout = *params::BuildLayout(job.model);
  const ExchangeSizes sizes = *PlanExchangeSizes(job, layout, /*num_servers=*/1);
  EXPECT_LT(ForecastExchange(job, sizes, slower).utilisation(), 0.949);
  const job::JobSpec& spared = Chosen(choice).job;
  const ExchangeSizes spared_sizes = *PlanExchangeSizes(spared, layout, /*num_servers=*/1);
  EXPECT_GE(ForecastExchange(spared, spared_sizes, slower).utilisation(), 0.949);
}

TEST(ExchangeChoiceTest, EveryOptionIsAJobThatServersTake) {
  for (const std::string preset : {"mlp", "gpt-nano", "gpt2-124m"}) {
    for (const ExchangeOption& option :
         Choose(preset, Links(2, 10, absl::Milliseconds(100))).options) {
      job::JobSpec job = option.job;
      job.schedule.total_rounds = 100;
      EXPECT_OK(job::ValidateJobSpec(job)) << preset << ": " << option.name;
    }
  }
}

TEST(ExchangeChoiceTest, WhatAJobDoesBesideItsExchangeKeepsNoOptionFromBeingAJob) {
  job::JobSpec base = Base("gpt-nano");
  base.schedule.total_rounds = 100;
  base.mode = job::Mode::kAsyncLocalSgd;
  base.anchor = job::Anchor::kServer;
  base.momentum_correction = job::MomentumCorrectionKind::kHeloco;
  base.outer_reduction = job::OuterReduction::kDirection;
  const ExchangeFacts facts = Links(4, 100, absl::Milliseconds(20));
  const ExchangeChoice choice =
      *ChooseExchange(base, *params::BuildLayout(base.model), /*num_servers=*/1, facts, {});
  for (const ExchangeOption& option : choice.options) {
    EXPECT_OK(job::ValidateJobSpec(option.job)) << option.name;
  }
}

TEST(ExchangeChoiceTest, ATightLossLeavesSync) {
  const ExchangeChoice choice =
      Choose("gpt2-124m", Links(8, 100, absl::Milliseconds(50)), {.loss_percent = 0.05});
  EXPECT_FALSE(choice.is_met);
  EXPECT_EQ(Chosen(choice).job.mode, job::Mode::kSync);
  EXPECT_EQ(*Chosen(choice).loss.percent, 0.0);
}

TEST(ExchangeChoiceTest, ItSaysWhatIsMissingAndWhatWouldDo) {
  const ExchangeBounds bounds = {.loss_percent = 3.0};
  const ExchangeChoice slow = Choose("gpt2-1.5b", Links(4, 1, absl::Milliseconds(100)), bounds);
  EXPECT_FALSE(slow.is_met);
  EXPECT_THAT(slow.reason,
              AllOf(HasSubstr("no setting lets workers compute 95.0 %"),
                    HasSubstr("the nearest setting is "), HasSubstr("what helps: use links "),
                    HasSubstr("times as fast"),
                    HasSubstr("links limit the job most, because 4 workers share them")));
  EXPECT_FALSE(ExchangeFlags(Chosen(slow).job).empty());

  const ExchangeChoice many = Choose("gpt2-124m", Links(64, 1000, absl::Milliseconds(50)), bounds);
  EXPECT_FALSE(many.is_met);
  EXPECT_THAT(many.reason,
              AllOf(HasSubstr("no setting lets workers compute 95.0 %"), HasSubstr("a loss of +")));
}

TEST(ExchangeChoiceTest, LinksThatAreSaidToBeEnoughAreEnough) {
  ExchangeFacts facts = Links(2, 1, absl::Milliseconds(50));
  facts.step = absl::Milliseconds(50);
  const ExchangeBounds bounds = {.loss_percent = 3.0};
  const ExchangeChoice slow = Choose("gpt2-124m", facts, bounds);
  ASSERT_FALSE(slow.is_met);
  const std::string kLinks = "links that are ";
  const size_t at = slow.reason.find(kLinks);
  ASSERT_NE(at, std::string::npos) << slow.reason;
  const double times = std::stod(slow.reason.substr(at + kLinks.size()));
  ASSERT_GT(times, 1.0);
  const auto with = [&](double factor) {
    ExchangeFacts faster = Links(2, factor, absl::Milliseconds(50));
    faster.step = facts.step;
    return Choose("gpt2-124m", faster, bounds).is_met;
  };
  EXPECT_TRUE(with(times * 1.01));
  EXPECT_FALSE(with(times * 0.9));
}

TEST(ExchangeChoiceTest, AsynchronousModesAreForecastAndNotChosen) {
  const ExchangeBounds only = {.modes = {job::Mode::kAsync, job::Mode::kAsyncLocalSgd}};
  const job::JobSpec base = Base("gpt-nano");
  EXPECT_THAT(ChooseExchange(base, *params::BuildLayout(base.model), 1,
                             Links(2, 100, absl::Milliseconds(50)), only)
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no setting of sync or local_sgd is possible")));
  std::vector<std::string> names;
  for (const ExchangeOption& option :
       Choose("gpt-nano", Links(2, 100, absl::Milliseconds(50))).options) {
    names.push_back(option.name);
  }
  EXPECT_THAT(names, AllOf(Contains(HasSubstr("async, ")), Contains(HasSubstr("async DiLoCo"))));
}

TEST(ExchangeChoiceTest, KeepsWhatIsToStay) {
  job::JobSpec base = Base("gpt-mini");
  base.mode = job::Mode::kLocalSgd;
  base.push_encoding = params::Encoding::kInt8;
  base.pull_encoding = params::Encoding::kBf16;
  base.fragments = 3;
  ExchangeBounds bounds = {.modes = {job::Mode::kLocalSgd}};
  bounds.open.push_encoding = false;
  bounds.open.pull_encoding = false;
  const params::Layout layout = *params::BuildLayout(base.model);
  const ExchangeFacts facts = Links(2, 100, absl::Milliseconds(50));
  const ExchangeChoice encoded = *ChooseExchange(base, layout, 1, facts, bounds);
  for (const ExchangeOption& option : encoded.options) {
    EXPECT_EQ(option.job.push_encoding, params::Encoding::kInt8);
    EXPECT_EQ(option.job.pull_encoding, params::Encoding::kBf16);
    EXPECT_THAT(option.name, HasSubstr("int8 up, bf16 down"));
  }
  bounds.open.fragments = false;
  const ExchangeChoice choice = *ChooseExchange(base, layout, 1, facts, bounds);
  for (const ExchangeOption& option : choice.options) {
    EXPECT_EQ(option.job.fragments, 3) << option.name;
  }
  base.fragments = 1;
  const ExchangeChoice whole = *ChooseExchange(base, layout, 1, facts, bounds);
  for (const ExchangeOption& option : whole.options) {
    EXPECT_EQ(option.job.fragments, 1) << option.name;
  }
}

// Fixes one setting at a time, to a value that is never chosen.
TEST(ExchangeChoiceTest, WhatIsNotOpenIsAsItIsGiven) {
  job::JobSpec base = Base("gpt-nano");
  base.local_steps = 42;
  base.fragments = 3;
  base.overlap_steps = 5;
  base.push_encoding = params::Encoding::kFp16;
  base.pull_encoding = params::Encoding::kBf16;
  const params::Layout layout = *params::BuildLayout(base.model);
  using Value = std::function<std::string(const job::JobSpec&)>;
  const std::vector<std::pair<bool job::OpenSettings::*, Value>> settings = {
      {&job::OpenSettings::local_steps,
       [](const job::JobSpec& job) { return absl::StrCat(job.local_steps); }},
      {&job::OpenSettings::fragments,
       [](const job::JobSpec& job) { return absl::StrCat(job.fragments); }},
      {&job::OpenSettings::overlap,
       [](const job::JobSpec& job) { return absl::StrCat(job.overlap_steps); }},
      {&job::OpenSettings::push_encoding,
       [](const job::JobSpec& job) { return params::EncodingText(job.push_encoding); }},
      {&job::OpenSettings::pull_encoding,
       [](const job::JobSpec& job) { return params::EncodingText(job.pull_encoding); }}};
  for (const auto& [setting, value] : settings) {
    ExchangeBounds bounds;
    bounds.open.*setting = false;
    const ExchangeFacts facts = Links(2, 10, absl::Milliseconds(50));
    const ExchangeChoice choice = *ChooseExchange(base, layout, 1, facts, bounds);
    for (const ExchangeOption& option : choice.options) {
      EXPECT_EQ(value(option.job), value(base)) << option.name;
      // An encoding has an effect in every mode, the other settings only with local steps.
      EXPECT_TRUE(setting == &job::OpenSettings::push_encoding ||
                  setting == &job::OpenSettings::pull_encoding || job::HasLocalSteps(option.job))
          << option.name;
    }
  }
}

TEST(ExchangeChoiceTest, WhatIsGivenAsInSyncLeavesSyncToBeChosen) {
  const job::JobSpec base = Base("gpt-nano");  // one step, one fragment, no overlap
  const params::Layout layout = *params::BuildLayout(base.model);
  for (const auto setting : {&job::OpenSettings::local_steps, &job::OpenSettings::fragments,
                             &job::OpenSettings::overlap}) {
    ExchangeBounds bounds;
    bounds.open.*setting = false;
    const ExchangeFacts facts = Links(1, 1e6, absl::ZeroDuration());
    EXPECT_EQ(Chosen(*ChooseExchange(base, layout, 1, facts, bounds)).job.mode, job::Mode::kSync);
  }
}

TEST(ExchangeChoiceTest, AnyFragmentsAndOverlapThatAreGivenHaveLocalSteps) {
  job::JobSpec base = Base("gpt2-124m");
  const params::Layout layout = *params::BuildLayout(base.model);
  ExchangeBounds bounds;
  bounds.open.fragments = bounds.open.overlap = false;
  for (const auto& [fragments, overlap] : std::vector<std::pair<int, int>>{{13, 1}, {16, 40}}) {
    base.fragments = fragments;
    base.overlap_steps = overlap;
    const ExchangeChoice choice =
        *ChooseExchange(base, layout, 1, Links(2, 100, absl::Milliseconds(50)), bounds);
    const job::JobSpec& job = Chosen(choice).job;
    EXPECT_EQ(job.local_steps % fragments, 0) << job.local_steps;
    EXPECT_GE(job.local_steps, fragments * overlap);
  }
}

// The plain average that is given loses more than the bound allows. No other setting can change
// that.
TEST(ExchangeChoiceTest, TheBoundOfTheLossIsBeyondWhatIsGivenCosts) {
  job::JobSpec base = Base("gpt2-124m");
  base.mode = job::Mode::kLocalSgd;
  base.outer_optimizer = job::OuterOptimizerKind::kAverage;
  const ExchangeBounds bounds = {.loss_percent = 1.5, .open = {.local_steps = true}};
  const params::Layout layout = *params::BuildLayout(base.model);
  const ExchangeChoice choice =
      *ChooseExchange(base, layout, 1, Links(2, 1000, absl::Milliseconds(1)), bounds);
  EXPECT_GT(*Chosen(choice).loss.percent, 1.5);
  EXPECT_TRUE(Chosen(choice).protects_loss);
  EXPECT_LE(*Chosen(choice).loss.percent, choice.most_loss_percent + 1e-3);
  EXPECT_THAT(Chosen(choice).name, HasSubstr("local SGD"));
}

TEST(ExchangeChoiceTest, WhatIsNotPossibleIsNotChosenAndNamedIfNothingIs) {
  const job::JobSpec base = Base("gpt-nano");
  const params::Layout layout = *params::BuildLayout(base.model);
  const ExchangeFacts facts = Links(2, 10, absl::Milliseconds(50));
  ExchangeBounds bounds;
  bounds.possible = [](const job::JobSpec& job) {
    return job.mode == job::Mode::kSync ? absl::OkStatus()
                                        : absl::InvalidArgumentError("not today");
  };
  const ExchangeChoice choice = *ChooseExchange(base, layout, 1, facts, bounds);
  EXPECT_EQ(Chosen(choice).job.mode, job::Mode::kSync);
  EXPECT_THAT(choice.reason, HasSubstr(Chosen(choice).name));
  bounds.open.mode = false;
  job::JobSpec local = base;
  local.mode = job::Mode::kLocalSgd;
  EXPECT_THAT(ChooseExchange(local, layout, 1, facts, bounds).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not today")));
}

TEST(ExchangeChoiceTest, LocalStepsAloneAreChosenForTheModeThatIsGiven) {
  job::JobSpec base = Base("gpt-nano");
  base.mode = job::Mode::kLocalSgd;
  base.outer_optimizer = job::OuterOptimizerKind::kAverage;
  base.push_encoding = params::Encoding::kInt8;
  base.pull_encoding = params::Encoding::kInt8;
  ExchangeBounds bounds = {.open = {.local_steps = true}};
  const params::Layout layout = *params::BuildLayout(base.model);
  const auto chosen = [&](double megabits) {
    return *ChooseExchange(base, layout, 1, Links(2, megabits, absl::Milliseconds(1)), bounds);
  };
  const ExchangeChoice slow = chosen(100);
  const ExchangeChoice fast = chosen(10'000);
  ASSERT_EQ(slow.options.size(), 1u);
  EXPECT_GT(Chosen(slow).job.local_steps, Chosen(fast).job.local_steps);
  job::JobSpec rest = Chosen(slow).job;
  rest.local_steps = base.local_steps;
  rest.min_workers = base.min_workers;
  EXPECT_EQ(job::JobSettings(rest), job::JobSettings(base));
}

TEST(ExchangeChoiceTest, OverlappedRoundsAreNotChosenForAnOuterRateAtWhichStepsMayGrow) {
  job::JobSpec base = Base("gpt-nano");
  base.mode = job::Mode::kLocalSgd;
  base.outer_optimizer = job::OuterOptimizerKind::kNesterov;
  base.local_steps = 40;
  const ExchangeBounds bounds = {.open = {.overlap = true}};
  const params::Layout layout = *params::BuildLayout(base.model);
  const auto has_overlapped_rounds = [&](double rate) {
    base.outer_learning_rate = rate;
    const ExchangeChoice choice =
        *ChooseExchange(base, layout, 1, Links(2, 100, absl::Milliseconds(50)), bounds);
    return std::any_of(choice.options.begin(), choice.options.end(),
                       [](const ExchangeOption& option) { return option.job.overlap_rounds; });
  };
  EXPECT_TRUE(has_overlapped_rounds(0.4));
  EXPECT_FALSE(has_overlapped_rounds(0.7));
}

TEST(ExchangeChoiceTest, ProgramsOfOthersAreNotAskedToOverlap) {
  job::JobSpec base = Base("gpt-nano");
  const params::Layout layout = *params::BuildLayout(base.model);
  base.model.architecture = params::ClientModelSpec();
  const ExchangeChoice choice =
      *ChooseExchange(base, layout, 1, Links(2, 100, absl::Milliseconds(50)), {});
  for (const ExchangeOption& option : choice.options) {
    EXPECT_FALSE(job::DefersContributions(option.job)) << option.name;
  }
}

TEST(ExchangeFlagsTest, NameWhatDiffersFromTheDefaultsAndCounts) {
  job::JobSpec job = Base("gpt-nano");
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = 40;
  job.fragments = 4;
  job.overlap_steps = 3;
  job.outer_learning_rate = 0.6;
  job.push_encoding = params::Encoding::TopK(256, 4);
  job.pull_encoding = params::Encoding::kInt4;
  job.topk_divisor = job::TopKDivisor::kSenders;
  job.quorum = 3;  // not a setting of the exchange
  EXPECT_THAT(
      ExchangeFlags(job),
      ElementsAre("--mode=local_sgd", "--local_steps=40", "--fragments=4", "--overlap_steps=3",
                  "--outer_learning_rate=0.6", "--outer_momentum=0.9", "--push_encoding=topk",
                  "--pull_encoding=int4", "--topk=256", "--topk_bits=4", "--topk_divisor=senders"));
  EXPECT_THAT(ExchangeFlags(job), Not(Contains(HasSubstr("quorum"))));
}

}  // namespace
}  // namespace lodestar::plan
