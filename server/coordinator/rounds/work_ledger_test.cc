// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/work_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lodestar::rounds {
namespace {

job::JobSpec JobOf(int64_t global_batch_size, int local_steps = 1) {
  job::JobSpec job;
  job.global_batch_size = global_batch_size;
  job.local_steps = local_steps;
  job.schedule.kind = job::ScheduleKind::kLinear;
  job.schedule.peak = 1.0;
  job.schedule.total_rounds = 10;
  return job;
}

std::vector<sync::RosterMember> RosterOf(int count) {
  std::vector<sync::RosterMember> roster;
  for (int i = 0; i < count; ++i) {
    roster.push_back({WorkerId(static_cast<uint32_t>(i + 1)), Incarnation(1), 0});
  }
  return roster;
}

messages::DatasetInfo Dataset(int64_t heldout) {
  return {.fingerprint = "a", .num_train_samples = 100, .num_heldout_samples = heldout};
}

// Returns the ledger of a job whose workers 1 to 8 all have `dataset`.
WorkLedger LedgerOf(const job::JobSpec& job, const checkpoints::LedgerState& state = {},
                    const messages::DatasetInfo& dataset = Dataset(0)) {
  WorkLedger ledger(job, state);
  for (const sync::RosterMember& member : RosterOf(8)) {
    EXPECT_EQ(ledger.AdmitWorker(member.worker, "w", dataset), std::nullopt);
  }
  return ledger;
}

messages::DatasetInfo OwnData(const std::string& fingerprint, int64_t train, int64_t heldout) {
  return {.fingerprint = fingerprint,
          .num_train_samples = train,
          .num_heldout_samples = heldout,
          .own_partition = true};
}

TEST(WorkLedgerTest, GlobalBatchIsTheSameSamplesForAnyNumberOfWorkers) {
  for (int workers : {1, 2, 3, 5, 7}) {
    WorkLedger ledger = LedgerOf(JobOf(7));
    for (int64_t round = 0; round < 3; ++round) {
      const WorkLedger::Work work = ledger.OpenRound(ViewId(1), RosterOf(workers), Round(0));
      int64_t next = round * 7;
      for (int i = 0; i < workers; ++i) {
        EXPECT_EQ(work.grants[i].first_sample, next);
        EXPECT_EQ(work.grants[i].first_position, next);
        EXPECT_GT(work.grants[i].num_samples, 0);
        EXPECT_EQ(work.plan.roster[i].num_samples, work.grants[i].num_samples);
        next += work.grants[i].num_samples;
      }
      EXPECT_EQ(next, (round + 1) * 7) << workers << " workers";
      EXPECT_EQ(work.plan.total_samples(), 7);
    }
  }
}

TEST(WorkLedgerTest, AllGrantsOfARoundHaveThePositionOfItsFirstSample) {
  WorkLedger ledger = LedgerOf(JobOf(7));
  for (int64_t round = 0; round < 3; ++round) {
    for (const messages::Grant& grant : ledger.OpenRound(ViewId(1), RosterOf(3), Round(0)).grants) {
      EXPECT_EQ(grant.round_first_sample, 7 * round);
    }
  }
  const WorkLedger::Work work = ledger.OpenRound(
      ViewId(1), RosterOf(2), Round(0), WorkLedger::Computes::kYes, {}, {WorkerId(1), WorkerId(2)});
  EXPECT_EQ(work.grants[0].round_first_sample, 21);
  EXPECT_EQ(work.grants[1].round_first_sample, 21);
  EXPECT_EQ(ledger.Extend(WorkerId(2), work.grants[1]).round_first_sample, 21);
}

TEST(WorkLedgerTest, BySpeedTheSamplesOfARoundAreTheSame) {
  job::JobSpec job = JobOf(12);
  job.balance = job::Balance::kSpeed;
  WorkLedger ledger = LedgerOf(job);
  const auto samples = [&](const MemberSpeeds& speeds) {
    const WorkLedger::Work work =
        ledger.OpenRound(ViewId(1), RosterOf(3), Round(0), WorkLedger::Computes::kYes, speeds);
    EXPECT_EQ(work.plan.total_samples(), 12);
    std::vector<int64_t> counts;
    int64_t next = work.grants[0].first_sample;
    for (size_t i = 0; i < work.grants.size(); ++i) {
      EXPECT_EQ(work.grants[i].first_sample, next);
      EXPECT_EQ(work.plan.roster[i].num_samples, work.grants[i].num_samples);
      next += work.grants[i].num_samples;
      counts.push_back(work.grants[i].num_samples);
    }
    return counts;
  };
  EXPECT_EQ(samples({}), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(samples({.roster = {1.0, 2.0, 3.0}, .fastest = 3.0}), (std::vector<int64_t>{2, 4, 6}));
  // A worker that has slowed down gets fewer samples in the next round.
  EXPECT_EQ(samples({.roster = {1.0, 2.0, 1.0}, .fastest = 2.0}), (std::vector<int64_t>{3, 6, 3}));
  job.balance = job::Balance::kEqual;
  ledger = LedgerOf(job);
  EXPECT_EQ(samples({.roster = {1.0, 2.0, 3.0}, .fastest = 3.0}), (std::vector<int64_t>{4, 4, 4}));
}

TEST(WorkLedgerTest, BySpeedWhoHasRoundsOfItsOwnMakesFewerSteps) {
  job::JobSpec job = JobOf(0, /*local_steps=*/8);
  job.batch_size = 5;
  job.mode = job::Mode::kAsyncLocalSgd;
  job.balance = job::Balance::kSpeed;
  WorkLedger ledger = LedgerOf(job);
  const messages::Grant slow =
      ledger
          .OpenRound(ViewId(1), RosterOf(1), Round(0), WorkLedger::Computes::kYes,
                     {.roster = {2.0}, .fastest = 8.0})
          .grants[0];
  EXPECT_EQ(slow.local_steps, 2);
  EXPECT_EQ(slow.num_samples, 10);
  ASSERT_EQ(slow.learning_rates.size(), 2u);
  // The two steps of the slow worker together cover the same part of the schedule as all steps of
  // the fast worker.
  EXPECT_NEAR(slow.learning_rates[0] - slow.learning_rates[1], 0.05, 1e-12);
  const messages::Grant next = ledger.OpenRound(ViewId(1), RosterOf(1), Round(0)).grants[0];
  EXPECT_EQ(next.local_steps, 8);
  EXPECT_EQ(next.first_sample, 10);
}

TEST(WorkLedgerTest, BatchSizeIsPerWorkerAndLocalStep) {
  job::JobSpec job = JobOf(0, 4);
  job.batch_size = 8;
  WorkLedger ledger = LedgerOf(job);
  const WorkLedger::Work work = ledger.OpenRound(ViewId(1), RosterOf(2), Round(0));
  EXPECT_EQ(work.grants[0].num_samples, 32);
  EXPECT_EQ(work.grants[1].first_sample, 32);
  EXPECT_EQ(work.grants[1].local_steps, 4);
  EXPECT_EQ(ledger.state().next_sample, 64);
}

job::JobSpec FragmentsJob() {
  job::JobSpec job = JobOf(0, /*local_steps=*/5);
  job.mode = job::Mode::kLocalSgd;
  job.fragments = 2;
  job.batch_size = 8;
  return job;
}

TEST(WorkLedgerTest, ADeferredContributionStandsForWhatIsInHand) {
  WorkLedger ledger = LedgerOf(FragmentsJob());
  std::vector<sync::RosterMember> roster = RosterOf(2);
  roster[0].num_samples = 40;
  const WorkLedger::Work work = ledger.OpenRound(ViewId(1), roster, Round(0));
  EXPECT_EQ(work.plan.roster[0].num_samples, 40);
  EXPECT_EQ(work.plan.roster[1].num_samples, 0);
  // A cycle has five steps. The first round has two of them.
  EXPECT_EQ(work.grants[0].local_steps, 2);
  EXPECT_EQ(work.grants[0].num_samples, 16);
  EXPECT_EQ(work.grants[1].first_sample, 16);
  EXPECT_EQ(work.grants[0].learning_rates.size(), 2u);
  EXPECT_EQ(work.grants[1].round_samples, 40);
  EXPECT_EQ(ledger.OpenRound(ViewId(1), roster, Round(1)).grants[0].local_steps, 3);
}

TEST(WorkLedgerTest, NothingIsComputedInTheLastRoundOfDeferredContributions) {
  WorkLedger ledger = LedgerOf(FragmentsJob());
  for (int round = 0; round < 9; ++round) {
    EXPECT_GT(ledger.OpenRound(ViewId(1), RosterOf(1), Round(0)).grants[0].num_samples, 0);
  }
  const int64_t cursor = ledger.state().next_sample;
  const WorkLedger::Work last = ledger.OpenRound(ViewId(1), RosterOf(1), Round(0));
  EXPECT_EQ(last.grants[0].local_steps, 0);
  EXPECT_EQ(last.grants[0].num_samples, 0);
  EXPECT_EQ(ledger.state().next_sample, cursor);
}

TEST(WorkLedgerTest, ARoundThatIsToComputeNothingTakesNoSamples) {
  WorkLedger ledger = LedgerOf(FragmentsJob());
  const WorkLedger::Work work =
      ledger.OpenRound(ViewId(1), RosterOf(1), Round(0), WorkLedger::Computes::kNo);
  EXPECT_EQ(work.grants[0].num_samples, 0);
  EXPECT_EQ(ledger.OpenRound(ViewId(1), RosterOf(1), Round(0)).grants[0].first_sample, 0);
}

TEST(WorkLedgerTest, LearningRatesFollowGlobalProgressThroughLocalSteps) {
  WorkLedger ledger = LedgerOf(JobOf(4, 4), {.next_round = 5});
  const WorkLedger::Work work = ledger.OpenRound(ViewId(1), RosterOf(1), Round(5));
  EXPECT_DOUBLE_EQ(work.plan.learning_rate, 0.5);
  const std::vector<double>& rates = work.grants[0].learning_rates;
  ASSERT_EQ(rates.size(), 4);
  EXPECT_DOUBLE_EQ(rates[0], 0.5);
  EXPECT_DOUBLE_EQ(rates[1], 0.475);
  EXPECT_DOUBLE_EQ(rates[3], 0.425);
}

TEST(WorkLedgerTest, ALostRoundHasAnotherInItsPlace) {
  job::JobSpec job = JobOf(7);
  job.schedule.total_rounds = 3;
  job.eval_every = 1;
  WorkLedger ledger = LedgerOf(job, {}, Dataset(5));
  const auto close = [&](const WorkLedger::Work& work) {
    HeldoutSums sums;
    sums.predictions = work.grants[0].num_heldout_samples;
    return ledger.CloseRound(work.plan.round, 7, sums).has_value();
  };
  EXPECT_FALSE(close(ledger.OpenRound(ViewId(1), RosterOf(1), Round(0))));
  WorkLedger::Work lost = ledger.OpenRound(ViewId(1), RosterOf(1), Round(0));
  EXPECT_EQ(lost.grants[0].num_heldout_samples, 5);
  ledger.LoseRound(lost.plan.round);
  EXPECT_EQ(ledger.total_rounds(), 4);
  WorkLedger restored = LedgerOf(job, ledger.state(), Dataset(5));
  EXPECT_EQ(restored.total_rounds(), 4);
  const WorkLedger::Work again = ledger.OpenRound(ViewId(1), RosterOf(1), Round(0));
  EXPECT_EQ(again.plan.round, Round(2));
  EXPECT_EQ(again.plan.learning_rate, lost.plan.learning_rate);
  EXPECT_EQ(again.grants[0].num_heldout_samples, 5) << "the evaluation that was lost";
  EXPECT_EQ(again.grants[0].total_rounds, 4);
  EXPECT_EQ(again.grants[0].first_sample, 14) << "the samples of the lost one are nobody's";
  EXPECT_TRUE(close(again));
  EXPECT_FALSE(ledger.is_exhausted());
  EXPECT_EQ(ledger.OpenRound(ViewId(1), RosterOf(1), Round(0)).grants[0].num_heldout_samples, 5);
  EXPECT_TRUE(ledger.is_exhausted());
}

TEST(WorkLedgerTest, FirstRoundThatIsLostBringsNoEvaluation) {
  job::JobSpec job = JobOf(7);
  job.eval_every = 1;
  WorkLedger ledger = LedgerOf(job, {}, Dataset(5));
  ledger.LoseRound(ledger.OpenRound(ViewId(1), RosterOf(1), Round(0)).plan.round);
  const WorkLedger::Work again = ledger.OpenRound(ViewId(1), RosterOf(1), Round(0));
  EXPECT_EQ(again.grants[0].num_heldout_samples, 0);
}

TEST(WorkLedgerTest, EvaluationThatIsLostAmongOpenRoundsComesWithTheNextRound) {
  job::JobSpec job = JobOf(7);
  job.mode = job::Mode::kAsync;
  job.eval_every = 3;
  WorkLedger ledger = LedgerOf(job, {.next_round = 2}, Dataset(5));
  ledger.OpenRound(ViewId(1), RosterOf(1), Round(0));
  const WorkLedger::Work lost = ledger.OpenRound(ViewId(1), RosterOf(1), Round(0));
  ASSERT_EQ(lost.grants[0].num_heldout_samples, 5);
  EXPECT_EQ(ledger.OpenRound(ViewId(1), RosterOf(1), Round(0)).grants[0].num_heldout_samples, 0);
  ledger.LoseRound(lost.plan.round);
  EXPECT_EQ(ledger.OpenRound(ViewId(1), RosterOf(1), Round(0)).grants[0].num_heldout_samples, 5);
  EXPECT_EQ(ledger.OpenRound(ViewId(1), RosterOf(1), Round(0)).grants[0].num_heldout_samples, 0);
}

TEST(WorkLedgerTest, EvaluationCutsCoverTheHeldOutSetExactlyOnce) {
  for (int64_t size : {1, 2, 7, 64}) {
    for (int workers : {1, 2, 3, 8}) {
      job::JobSpec job = JobOf(16);
      job.eval_every = 2;
      WorkLedger ledger = LedgerOf(job, {.next_round = 4}, Dataset(size));
      const auto roster = RosterOf(workers);
      for (const WorkLedger::Work& work :
           {ledger.OpenFinalEvaluation(ViewId(1), roster, Round(10), Round(10)),
            ledger.OpenRound(ViewId(1), roster, Round(4))}) {
        int64_t next = 0;
        for (const messages::Grant& grant : work.grants) {
          EXPECT_EQ(grant.first_heldout_sample, next);
          EXPECT_EQ(grant.evaluation_set_size, size);
          next += grant.num_heldout_samples;
        }
        EXPECT_EQ(next, size) << workers << " workers";
      }
    }
  }
}

TEST(WorkLedgerTest, EvaluatesEveryFewRoundsButNotBeforeTheFirst) {
  job::JobSpec job = JobOf(4);
  job.eval_every = 3;
  job.eval_samples = 5;
  WorkLedger ledger = LedgerOf(job, {}, Dataset(50));
  std::vector<int64_t> rounds;
  while (!ledger.is_exhausted()) {
    const messages::Grant grant = ledger.OpenRound(ViewId(1), RosterOf(1), Round(0)).grants[0];
    if (grant.num_heldout_samples == 0) continue;
    rounds.push_back(grant.round.value());
    EXPECT_EQ(grant.evaluation_set_size, 5);
  }
  EXPECT_EQ(rounds, (std::vector<int64_t>{3, 6, 9}));
  EXPECT_TRUE(ledger.needs_final_evaluation());
  ledger.FinishFinalEvaluation();
  EXPECT_FALSE(ledger.needs_final_evaluation());
}

TEST(WorkLedgerTest, RestoredStateGoesOnWithTheSameGrants) {
  job::JobSpec job = JobOf(7, 2);
  job.eval_every = 2;
  WorkLedger whole = LedgerOf(job, {}, Dataset(9));
  for (int i = 0; i < 4; ++i) whole.OpenRound(ViewId(1), RosterOf(3), Round(0));
  WorkLedger restored = LedgerOf(job, whole.state(), Dataset(9));
  while (!whole.is_exhausted()) {
    EXPECT_EQ(restored.OpenRound(ViewId(1), RosterOf(2), Round(0)).grants,
              whole.OpenRound(ViewId(1), RosterOf(2), Round(0)).grants);
  }
  EXPECT_TRUE(restored.is_exhausted());
}

// Fixture with two workers that have data of their own, 10 and 30 samples, in batches of 4 samples
// each.
class OwnDataTest : public testing::Test {
 protected:
  static job::JobSpec Job() {
    job::JobSpec job = JobOf(0);
    job.batch_size = 4;
    return job;
  }
  void SetUp() override {
    ASSERT_EQ(ledger_.AdmitWorker(WorkerId(1), "w1", OwnData("a", 10, 1)), std::nullopt);
    ASSERT_EQ(ledger_.AdmitWorker(WorkerId(2), "w2", OwnData("b", 30, 3)), std::nullopt);
  }
  std::vector<messages::Grant> Open() {
    return ledger_.OpenRound(ViewId(1), RosterOf(2), Round(0)).grants;
  }

  WorkLedger ledger_{Job(), checkpoints::LedgerState{}};
};

TEST_F(OwnDataTest, PassesOverOwnDataNeitherRepeatNorSkip) {
  std::vector<int64_t> next = {0, 0};
  for (int round = 0; round < 10; ++round) {
    const std::vector<messages::Grant> grants = Open();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(grants[i].first_sample, next[i]);
      EXPECT_EQ(grants[i].first_position, 8 * round + 4 * i) << "what masks depend on";
      next[i] += grants[i].num_samples;
    }
  }
  EXPECT_EQ(ledger_.state().next_sample, 80);
}

TEST_F(OwnDataTest, SharedWorkersHaveOneCursorBesideThem) {
  ASSERT_EQ(ledger_.AdmitWorker(WorkerId(3), "w3", Dataset(0)), std::nullopt);
  ASSERT_EQ(ledger_.AdmitWorker(WorkerId(4), "w4", Dataset(0)), std::nullopt);
  for (int round = 0; round < 3; ++round) {
    const auto grants = ledger_.OpenRound(ViewId(1), RosterOf(4), Round(0)).grants;
    EXPECT_EQ(grants[0].first_sample, 4 * round);
    EXPECT_EQ(grants[1].first_sample, 4 * round);
    EXPECT_EQ(grants[2].first_sample, 8 * round);
    EXPECT_EQ(grants[3].first_sample, 8 * round + 4);
    EXPECT_EQ(grants[1].round_first_sample, 4 * round);
    EXPECT_EQ(grants[3].round_first_sample, 8 * round);
  }
}

TEST_F(OwnDataTest, EpochIsBySumOfSizes) {
  for (int round = 0; round < 5; ++round) Open();
  EXPECT_DOUBLE_EQ(ledger_.epoch(), 40.0 / 40.0);
  EXPECT_DOUBLE_EQ(EpochOf(*ledger_.DataOf(WorkerId(1))), 2.0);
}

TEST_F(OwnDataTest, CursorsOutliveARestart) {
  Open();
  WorkLedger restored(Job(), ledger_.state());
  // The workers come back in another order, and one of them has another name.
  ASSERT_EQ(restored.AdmitWorker(WorkerId(1), "w1", OwnData("b", 30, 3)), std::nullopt);
  ASSERT_EQ(restored.AdmitWorker(WorkerId(7), "w7", OwnData("a", 10, 1)), std::nullopt);
  const std::vector<sync::RosterMember> roster = {{WorkerId(1), Incarnation(2), 0},
                                                  {WorkerId(7), Incarnation(2), 0}};
  for (const messages::Grant& grant : restored.OpenRound(ViewId(2), roster, Round(0)).grants) {
    EXPECT_EQ(grant.first_sample, 4);
  }
}

TEST_F(OwnDataTest, EvaluationCoversAllSetsBySize) {
  const WorkLedger::Work work =
      ledger_.OpenFinalEvaluation(ViewId(1), RosterOf(2), Round(10), Round(10));
  EXPECT_EQ(work.grants[0].num_heldout_samples, 1);
  EXPECT_EQ(work.grants[0].evaluation_set_size, 1);
  EXPECT_EQ(work.grants[1].num_heldout_samples, 3);
  EXPECT_EQ(work.grants[1].evaluation_set_size, 3);
  EXPECT_EQ(work.grants[1].first_heldout_sample, 0);
  EXPECT_EQ(ledger_.evaluation_set_size(), 4);
}

TEST_F(OwnDataTest, FewerEvaluationSamplesAreSharedOutBySize) {
  job::JobSpec job = Job();
  job.eval_samples = 10;
  WorkLedger ledger(job, checkpoints::LedgerState{});
  ASSERT_EQ(ledger.AdmitWorker(WorkerId(1), "w1", OwnData("a", 10, 60)), std::nullopt);
  ASSERT_EQ(ledger.AdmitWorker(WorkerId(2), "w2", OwnData("b", 30, 25)), std::nullopt);
  ASSERT_EQ(ledger.AdmitWorker(WorkerId(3), "w3", OwnData("c", 30, 15)), std::nullopt);
  const auto grants =
      ledger.OpenFinalEvaluation(ViewId(1), RosterOf(3), Round(10), Round(10)).grants;
  EXPECT_EQ(grants[0].num_heldout_samples, 6);
  EXPECT_EQ(grants[1].num_heldout_samples, 2);
  EXPECT_EQ(grants[2].num_heldout_samples, 2);
}

TEST_F(OwnDataTest, SaysWhoseDataAnEvaluationWouldLack) {
  EXPECT_EQ(ledger_.LackingFor(RosterOf(1)), std::vector<WorkerId>({WorkerId(2)}));
  EXPECT_TRUE(ledger_.LackingFor(RosterOf(2)).empty());
  ledger_.ReleaseWorker(WorkerId(2));
  EXPECT_TRUE(ledger_.LackingFor(RosterOf(1)).empty());
}

TEST_F(OwnDataTest, WhoTheBatchHasNoSamplesForIsNotWaitedForByEvaluations) {
  job::JobSpec job = JobOf(1);
  job.eval_every = 1;
  WorkLedger ledger(job, checkpoints::LedgerState{});
  ASSERT_EQ(ledger.AdmitWorker(WorkerId(1), "w1", OwnData("a", 10, 1)), std::nullopt);
  ASSERT_EQ(ledger.AdmitWorker(WorkerId(2), "w2", OwnData("b", 30, 3)), std::nullopt);
  for (int64_t round = 0; round < 4; ++round) {
    const messages::Grant grant = ledger.OpenRound(ViewId(1), RosterOf(1), Round(0)).grants[0];
    EXPECT_EQ(grant.num_heldout_samples, round == 0 ? 0 : 1);
  }
}

}  // namespace
}  // namespace lodestar::rounds
