#include "server/coordinator/work_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lodestar {
namespace {

JobSpec JobOf(int64_t global_batch_size, int local_steps = 1) {
  JobSpec job;
  job.global_batch_size = global_batch_size;
  job.local_steps = local_steps;
  job.schedule.kind = ScheduleKind::kLinear;
  job.schedule.peak = 1.0;
  job.schedule.total_rounds = 10;
  return job;
}

std::vector<RosterMember> RosterOf(int count) {
  std::vector<RosterMember> roster;
  for (int i = 0; i < count; ++i) {
    roster.push_back({WorkerId(static_cast<uint32_t>(i + 1)), Incarnation(1), 0});
  }
  return roster;
}

DatasetClaim Dataset(int64_t heldout) {
  return {.fingerprint = "a", .num_train_samples = 100, .num_heldout_samples = heldout};
}

TEST(WorkLedgerTest, GlobalBatchIsTheSameSamplesForAnyNumberOfWorkers) {
  for (int workers : {1, 2, 3, 5, 7}) {
    WorkLedger ledger(JobOf(7), LedgerState{});
    for (int64_t round = 0; round < 3; ++round) {
      const WorkLedger::Work work = ledger.OpenRound(ViewId(1), RosterOf(workers), Version(0));
      int64_t next = round * 7;
      for (int i = 0; i < workers; ++i) {
        EXPECT_EQ(work.grants[i].first_sample, next);
        EXPECT_GT(work.grants[i].num_samples, 0);
        EXPECT_EQ(work.plan.roster[i].num_samples, work.grants[i].num_samples);
        next += work.grants[i].num_samples;
      }
      EXPECT_EQ(next, (round + 1) * 7) << workers << " workers";
      EXPECT_EQ(work.plan.total_samples(), 7);
    }
  }
}

TEST(WorkLedgerTest, BatchSizeIsPerWorkerAndLocalStep) {
  JobSpec job = JobOf(0, 4);
  job.batch_size = 8;
  WorkLedger ledger(job, LedgerState{});
  const WorkLedger::Work work = ledger.OpenRound(ViewId(1), RosterOf(2), Version(0));
  EXPECT_EQ(work.grants[0].num_samples, 32);
  EXPECT_EQ(work.grants[1].first_sample, 32);
  EXPECT_EQ(work.grants[1].local_steps, 4);
  EXPECT_EQ(ledger.state().next_sample, 64);
}

TEST(WorkLedgerTest, LearningRatesFollowGlobalProgressThroughLocalSteps) {
  WorkLedger ledger(JobOf(4, 4), LedgerState{.next_round = 5});
  const WorkLedger::Work work = ledger.OpenRound(ViewId(1), RosterOf(1), Version(5));
  EXPECT_DOUBLE_EQ(work.plan.learning_rate, 0.5);
  const std::vector<double>& rates = work.grants[0].learning_rates;
  ASSERT_EQ(rates.size(), 4);
  EXPECT_DOUBLE_EQ(rates[0], 0.5);
  EXPECT_DOUBLE_EQ(rates[1], 0.475);
  EXPECT_DOUBLE_EQ(rates[3], 0.425);
}

TEST(WorkLedgerTest, EvaluationCutsCoverTheHeldOutSetExactlyOnce) {
  for (int64_t size : {1, 2, 7, 64}) {
    for (int workers : {1, 2, 3, 8}) {
      JobSpec job = JobOf(16);
      job.eval_every = 2;
      WorkLedger ledger(job, LedgerState{.next_round = 4});
      ASSERT_TRUE(ledger.AdmitDataset(Dataset(size), true).ok());
      const auto roster = RosterOf(workers);
      for (const WorkLedger::Work& work :
           {ledger.OpenFinalEvaluation(ViewId(1), roster, Round(10), Version(10)),
            ledger.OpenRound(ViewId(1), roster, Version(4))}) {
        int64_t next = 0;
        for (const Grant& grant : work.grants) {
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
  JobSpec job = JobOf(4);
  job.eval_every = 3;
  job.eval_samples = 5;
  WorkLedger ledger(job, LedgerState{});
  ASSERT_TRUE(ledger.AdmitDataset(Dataset(50), true).ok());
  std::vector<int64_t> rounds;
  while (!ledger.is_exhausted()) {
    const Grant grant = ledger.OpenRound(ViewId(1), RosterOf(1), Version(0)).grants[0];
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
  JobSpec job = JobOf(7, 2);
  job.eval_every = 2;
  WorkLedger whole(job, LedgerState{});
  ASSERT_TRUE(whole.AdmitDataset(Dataset(9), true).ok());
  for (int i = 0; i < 4; ++i) whole.OpenRound(ViewId(1), RosterOf(3), Version(0));
  WorkLedger restored(job, whole.state());
  while (!whole.is_exhausted()) {
    EXPECT_EQ(restored.OpenRound(ViewId(1), RosterOf(2), Version(0)).grants,
              whole.OpenRound(ViewId(1), RosterOf(2), Version(0)).grants);
  }
  EXPECT_TRUE(restored.is_exhausted());
}

TEST(WorkLedgerTest, OtherDataIsRefusedWithBothFingerprintsAndSizes) {
  WorkLedger ledger(JobOf(4), LedgerState{});
  ASSERT_TRUE(ledger.AdmitDataset(Dataset(9), false).ok());
  DatasetClaim other = Dataset(9);
  other.fingerprint = "b";
  other.num_train_samples = 77;
  const absl::Status refused = ledger.AdmitDataset(other, false);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* part : {"fingerprint a", "fingerprint b", "77", "100"}) {
    EXPECT_NE(refused.message().find(part), absl::string_view::npos) << part << refused;
  }
  other.own_partition = true;
  EXPECT_TRUE(ledger.AdmitDataset(other, false).ok());
  EXPECT_EQ(ledger.AdmitDataset({.fingerprint = "c"}, false).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(WorkLedgerTest, DataMayChangeWhileNothingHasBegunAndNobodyIsThere) {
  WorkLedger ledger(JobOf(4), LedgerState{});
  ASSERT_TRUE(ledger.AdmitDataset(Dataset(9), true).ok());
  ASSERT_TRUE(ledger.AdmitDataset(Dataset(8), true).ok());
  EXPECT_EQ(ledger.evaluation_set_size(), 8);
  ledger.OpenRound(ViewId(1), RosterOf(1), Version(0));
  EXPECT_FALSE(ledger.AdmitDataset(Dataset(9), true).ok());
}

}  // namespace
}  // namespace lodestar
