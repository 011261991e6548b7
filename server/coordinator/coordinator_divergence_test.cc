// SPDX-License-Identifier: Apache-2.0

// Tests of numbers that are not finite: which worker the coordinator blames, and what it does then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/testing/status_matchers.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_state_json.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class CoordinatorDivergenceTest : public ::testing::Test {
 protected:
  static Coordinator::Config Config(int workers, job::Mode mode = job::Mode::kSync) {
    Coordinator::Config config = TestConfig();
    config.job.mode = mode;
    config.job.min_workers = workers;
    config.job.schedule.peak = 0.4;
    config.job.schedule.total_rounds = 1000;
    config.checkpoint_dir = "ckpt";
    config.checkpoint_schedule.every_rounds = 4;
    return config;
  }
  static Coordinator::Config RollingBack(Coordinator::Config config) {
    config.divergence.action = faults::DivergenceAction::kRollback;
    return config;
  }

  void Start(const Coordinator::Config& config) {
    cluster_.emplace(config);
    cluster_->Start();
    for (int i = 0; i < config.job.min_workers; ++i) {
      workers_.push_back(cluster_->Add(std::string(1, static_cast<char>('a' + i))));
    }
  }

  // Returns the worker's grant. The test fails if it has none.
  messages::Grant GrantOf(int worker) {
    const GrantAnswer answer = cluster_->Ask(workers_[worker]);
    EXPECT_TRUE(answer.grant.has_value()) << answer.pending_reason;
    return answer.grant.value_or(messages::Grant());
  }
  // Lets all workers request a grant and report it, `rounds` times.
  void Train(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      for (const TestWorker& worker : workers_) cluster_->Ask(worker);
      for (size_t w = 0; w < workers_.size(); ++w) {
        cluster_->Ask(workers_[w], CoordinatorHarness::ReportOf(GrantOf(w)));
      }
    }
  }
  void Refuse(int worker, int64_t round) {
    const messages::WorkerLife& life = workers_[worker].life;
    coordinator().OnShardEvent(0,
                               sync::WorkerFault{.worker = life.worker,
                                                 .incarnation = life.incarnation,
                                                 .round = Round(round),
                                                 .kind = sync::WorkerFault::Kind::kNotFinite,
                                                 .text = "bucket 3, element 7: NaN"},
                               cluster_->now());
  }
  void TooLong(int worker, int64_t round) {
    const messages::WorkerLife& life = workers_[worker].life;
    // Every bucket reports the same fault.
    for (int bucket = 0; bucket < 3; ++bucket) {
      coordinator().OnShardEvent(
          0,
          sync::WorkerFault{.worker = life.worker,
                            .incarnation = life.incarnation,
                            .round = Round(round),
                            .kind = sync::WorkerFault::Kind::kTooLong,
                            .text = absl::StrCat("bucket ", bucket, ": a norm of 90")},
          cluster_->now());
    }
  }
  bool IsAlive(int worker) {
    return coordinator().PollGrant(workers_[worker].life, cluster_->now()).ok();
  }
  void ComeBack(int worker) {
    ASSERT_TRUE(cluster_->Register(workers_[worker]).ok());
    ASSERT_TRUE(cluster_->Join(workers_[worker]).ok());
  }
  ClusterSnapshot Snapshot() { return coordinator().Snapshot(cluster_->now()); }
  // Answers the ChooseRestoreTask with the last checkpoint that was published.
  void RestoreLast() {
    const checkpoints::CheckpointRecord& record = cluster_->store().published.back();
    cluster_->coordinator().OnRestoreChosen(
        RestoreChoice{.source = shards::CheckpointSource{record.final_directory},
                      .state = record.state,
                      .layout = coordinator().map()->layout},
        cluster_->now());
    cluster_->LoadAll();
  }

  Coordinator& coordinator() { return cluster_->coordinator(); }

  std::optional<CoordinatorHarness> cluster_;
  std::vector<TestWorker> workers_;
};

TEST_F(CoordinatorDivergenceTest, StopNamesTheRoundAndTheLastGoodCheckpointAndSavesNothing) {
  Start(Config(1));
  Train(4);
  cluster_->FinishSave();
  Train(1);
  const size_t saves = cluster_->sent().save_directories.size();
  EXPECT_EQ(GrantOf(0).round, Round(5));
  Refuse(0, 5);
  const GrantAnswer last = cluster_->Ask(workers_[0]);
  ASSERT_EQ(last.grant->kind, messages::Grant::Kind::kDone) << "the worker is not to blame";
  EXPECT_TRUE(last.grant->has_failed);
  EXPECT_THAT(last.grant->reason,
              AllOf(HasSubstr("diverged at round 5"),
                    HasSubstr("last good checkpoint: round 4, ckpt/round-00000004")));
  const ClusterSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.state, "diverged");
  EXPECT_EQ(snapshot.divergence->round, Round(5));
  EXPECT_THAT(cluster_->observer().alarms, Contains(HasSubstr("diverged at round 5")));
  EXPECT_FALSE(coordinator().RequestCheckpoint(cluster_->now()).ok());
  coordinator().BeginLastSave("SIGTERM", absl::Seconds(10), cluster_->now());
  EXPECT_FALSE(coordinator().outcome().has_value()) << "the worker has not been told yet";
  ASSERT_TRUE(coordinator().Leave(workers_[0].life, "done", {}, cluster_->now()).ok());
  ASSERT_TRUE(coordinator().outcome().has_value());
  EXPECT_THAT(std::string(coordinator().outcome()->message()),
              AllOf(HasSubstr("diverged at round 5"), HasSubstr("--learning_rate")));
  EXPECT_THAT(cluster_->sent().commands.back(), StartsWith("stop: diverged at round 5"));
  EXPECT_EQ(cluster_->sent().save_directories.size(), saves);
}

TEST_F(CoordinatorDivergenceTest, ServerDoesNotWaitForWorkersThatAreGone) {
  Start(Config(1));
  GrantOf(0);
  Refuse(0, 0);
  cluster_->Pass(absl::Seconds(11));
  ASSERT_TRUE(coordinator().outcome().has_value());
  EXPECT_FALSE(coordinator().outcome()->ok());
}

TEST_F(CoordinatorDivergenceTest, RollbackGoesOnFromTheLastGoodCheckpointWithALowerLearningRate) {
  Start(RollingBack(Config(1)));
  Train(4);
  cluster_->FinishSave();
  Train(1);
  EXPECT_EQ(GrantOf(0).learning_rates.at(0), 0.4);
  const int restores = cluster_->store().restores;
  Refuse(0, 5);
  EXPECT_EQ(cluster_->store().restores, restores + 1);
  EXPECT_THAT(cluster_->store().set_aside, ElementsAre(Round(5)));
  RestoreLast();
  const job::LearningRateSchedule& schedule = cluster_->sent().assignments.back().job.schedule;
  EXPECT_EQ(schedule.peak, 0.5 * Config(1).job.schedule.peak);
  EXPECT_FALSE(IsAlive(0)) << "all begin anew";
  ComeBack(0);
  const messages::Grant again = GrantOf(0);
  EXPECT_EQ(again.round, Round(4));
  EXPECT_EQ(again.first_sample, 4 * 6);
  EXPECT_EQ(again.learning_rates.at(0), 0.2);
  EXPECT_EQ(cluster_->sent().plans.back().learning_rate, 0.2);
  ClusterSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.rollbacks, 1);
  EXPECT_EQ(snapshot.learning_rate_scale, 0.5);
  EXPECT_EQ(snapshot.learning_rate, 0.2);
  EXPECT_EQ(snapshot.state, "training");
  EXPECT_THAT(cluster_->observer().alarms, Contains(HasSubstr("rollback 1 of 5")));

  // The run diverges again after the same checkpoint. The next checkpoint then says that there were
  // two rollbacks.
  Refuse(0, 4);
  RestoreLast();
  ComeBack(0);
  EXPECT_EQ(GrantOf(0).learning_rates.at(0), 0.1);
  Train(4);
  cluster_->FinishSave();
  EXPECT_EQ(cluster_->store().published.back().state.ledger.rollbacks, 2);
  CoordinatorHarness restarted(RollingBack(Config(1)));
  const checkpoints::CheckpointRecord& record = cluster_->store().published.back();
  restarted.Start(RestoreChoice{.source = shards::CheckpointSource{record.final_directory},
                                .state = record.state,
                                .layout = coordinator().map()->layout});
  EXPECT_EQ(restarted.Ask(restarted.Add("a")).grant->learning_rates.at(0), 0.1);
}

TEST_F(CoordinatorDivergenceTest, CheckpointOfTheWeightsThatGaveSuchNumbersIsNotGood) {
  Start(RollingBack(Config(1)));
  Train(4);
  cluster_->FinishSave();
  GrantOf(0);
  Refuse(0, 4);
  EXPECT_THAT(cluster_->store().set_aside, ElementsAre(Round(4)));
  EXPECT_THAT(cluster_->observer().alarms,
              Contains(HasSubstr("last good checkpoint: the one before ckpt/round-00000004")));

  // An update overflows. The weights before it are good, so the checkpoint of round 4 is not marked
  // as bad.
  workers_.clear();
  Start(RollingBack(Config(1)));
  Train(4);
  cluster_->FinishSave();
  coordinator().OnShardEvent(
      1, shards::ShardDiverged{coordinator().server_incarnation(), Round(4), "bucket 3"},
      cluster_->now());
  EXPECT_THAT(cluster_->store().set_aside, ElementsAre(Round(5)));

  // The checkpoint is marked as bad also if the job stops, so that a restart by an operator does
  // not use it.
  workers_.clear();
  Start(Config(1));
  Train(4);
  cluster_->FinishSave();
  GrantOf(0);
  Refuse(0, 4);
  EXPECT_THAT(cluster_->store().set_aside, ElementsAre(Round(4)));
  EXPECT_EQ(Snapshot().last_checkpoint, std::nullopt);
}

TEST_F(CoordinatorDivergenceTest, AsynchronousRoundsSayNothingAgainstCheckpointsThatCameBefore) {
  Start(Config(2, job::Mode::kAsync));
  for (const TestWorker& worker : workers_) cluster_->Ask(worker);
  Train(4);
  cluster_->FinishSave();
  const Round saved = cluster_->store().published.back().round;
  coordinator().OnShardEvent(
      1, shards::ShardDiverged{coordinator().server_incarnation(), Round(0), "bucket 3"},
      cluster_->now());
  EXPECT_GT(cluster_->store().set_aside.at(0), saved);
}

TEST_F(CoordinatorDivergenceTest, ARollbackIsSavedBeforeTheServersStop) {
  Start(RollingBack(Config(1)));
  Train(4);
  cluster_->FinishSave();
  Train(1);
  GrantOf(0);
  Refuse(0, 5);
  RestoreLast();
  coordinator().BeginLastSave("SIGTERM", absl::Seconds(10), cluster_->now());
  EXPECT_FALSE(coordinator().LastSaveOutcome().has_value()) << "taken for what is on disk";
  cluster_->FinishSave();
  EXPECT_EQ(cluster_->store().published.back().round, Round(4));
  EXPECT_EQ(cluster_->store().published.back().state.ledger.rollbacks, 1);
  EXPECT_EQ(cluster_->store().published.back().state.ledger.learning_rate_scale, 0.5);
  EXPECT_TRUE(coordinator().LastSaveOutcome()->ok());
}

TEST_F(CoordinatorDivergenceTest, AnOperatorSendsTheJobBackAndNothingElseChanges) {
  Start(Config(1));
  Train(4);
  cluster_->FinishSave();
  Train(1);
  EXPECT_THAT(coordinator().RollBack(Round(4), "'b' lied", cluster_->now()), IsOkAndHolds(5));
  EXPECT_THAT(cluster_->store().set_aside, ElementsAre(Round(5)));
  EXPECT_THAT(coordinator().RollBack(Round(4), "'b' lied", cluster_->now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot go back now")));
  RestoreLast();
  const ClusterSnapshot snapshot = Snapshot();
  EXPECT_EQ(snapshot.learning_rate_scale, 1.0);
  EXPECT_EQ(snapshot.rollbacks, 0);
  EXPECT_THAT(cluster_->observer().alarms,
              Contains("round 4 was lost when an operator sent the job back to round 4 "
                       "('b' lied)"));
  ComeBack(0);
  EXPECT_EQ(GrantOf(0).round, Round(4));
}

TEST_F(CoordinatorDivergenceTest, WhereTheJobIsBackIsToldBesideWhatWasAskedFor) {
  Start(Config(1));
  Train(4);
  cluster_->FinishSave();
  Train(3);
  EXPECT_THAT(coordinator().RollBack(Round(6), "'b' lied", cluster_->now()), IsOkAndHolds(7));
  EXPECT_THAT(cluster_->observer().alarms, Not(Contains(HasSubstr("operator"))))
      << "where to is not known yet";
  EXPECT_THAT(cluster_->observer().events,
              Contains(HasSubstr("from round 7 to the newest checkpoint of at most 6 rounds")));
  RestoreLast();
  EXPECT_THAT(cluster_->observer().alarms,
              Contains("rounds 4 to 6 were lost when an operator sent the job back to round 4, "
                       "the newest checkpoint of at most 6 rounds ('b' lied)"));
}

TEST_F(CoordinatorDivergenceTest, WhoWasRevokedBeforeTheJobWentBackIsSaidToBe) {
  Start(Config(2));
  Train(4);
  cluster_->FinishSave();
  Train(1);
  EXPECT_EQ(coordinator().EvictWorkers([](absl::string_view name) { return name == "b"; },
                                       "its identity was revoked", cluster_->now()),
            1);
  ASSERT_OK(coordinator().RollBack(Round(4), "'b' lied", cluster_->now()));
  RestoreLast();
  EXPECT_EQ(Snapshot().workers[0].reason, "has not come back since the servers started again");
  EXPECT_EQ(Snapshot().workers[1].reason, "dropped: its identity was revoked");
}

TEST_F(CoordinatorDivergenceTest, WhoSavesNothingOrIsDoneDoesNotGoBack) {
  Coordinator::Config config = Config(1);
  config.checkpoint_dir.clear();
  Start(config);
  EXPECT_THAT(coordinator().RollBack(Round(4), "", cluster_->now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--checkpoint_dir")));
  workers_.clear();
  Start(Config(1));
  Train(4);
  cluster_->FinishSave();
  EXPECT_THAT(coordinator().RollBack(Round(4), "", cluster_->now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("nothing to undo")));
  EXPECT_THAT(cluster_->store().set_aside, IsEmpty());
  coordinator().RequestStop("enough", cluster_->now());
  EXPECT_THAT(coordinator().RollBack(Round(4), "", cluster_->now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--resume=PATH")));
}

TEST_F(CoordinatorDivergenceTest, RollbacksAreLimited) {
  Coordinator::Config config = RollingBack(Config(1));
  config.checkpoint_dir.clear();
  config.checkpoint_schedule.every_rounds = 0;
  config.divergence.max_rollbacks = 2;
  Start(config);
  for (int rollback = 0; rollback < 2; ++rollback) {
    GrantOf(0);
    Refuse(0, 0);
    EXPECT_THAT(cluster_->observer().alarms.back(), HasSubstr("goes back to the first weights"));
    coordinator().OnRestoreChosen(RestoreChoice{.source = shards::InitialSource{}},
                                  cluster_->now());
    cluster_->LoadAll();
    ComeBack(0);
  }
  GrantOf(0);
  Refuse(0, 0);
  EXPECT_EQ(Snapshot().state, "diverged");
  EXPECT_THAT(cluster_->observer().alarms.back(), HasSubstr("after 2 rollbacks"));
}

TEST_F(CoordinatorDivergenceTest, WhatOperatorsMadeOfTheLearningRateIsNamedBesideRollbacks) {
  for (const int rollbacks : {0, 1}) {
    Coordinator::Config config = Config(1);
    if (rollbacks > 0) {
      config = RollingBack(config);
      config.divergence.max_rollbacks = rollbacks;
    }
    Start(config);
    const double before = coordinator().SetLearningRate(1e-6, cluster_->now())->before;
    for (int rollback = 0; rollback < rollbacks; ++rollback) {
      GrantOf(0);
      Refuse(0, 0);
      coordinator().OnRestoreChosen(RestoreChoice{.source = shards::InitialSource{}},
                                    cluster_->now());
      cluster_->LoadAll();
      ComeBack(0);
    }
    GrantOf(0);
    Refuse(0, 0);
    const std::string order =
        absl::StrFormat("after operators multiplied the learning rate by %.4g", 1e-6 / before);
    EXPECT_THAT(cluster_->observer().alarms.back(),
                HasSubstr(rollbacks == 0 ? absl::StrCat(" (", order, ").")
                                         : absl::StrCat(" (after 1 rollback, ", order, ").")));
    workers_.clear();
  }
}

TEST_F(CoordinatorDivergenceTest, WeightsSpoiltOnAnyShardAreADivergenceWithoutAnyonesFault) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync, job::Mode::kLocalSgd}) {
    workers_.clear();
    Start(RollingBack(Config(2, mode)));
    Train(2);
    coordinator().OnShardEvent(
        1, shards::ShardDiverged{coordinator().server_incarnation() - 1, Round(1), "late"},
        cluster_->now());
    EXPECT_EQ(Snapshot().rollbacks, 0) << "of an earlier life of the servers";
    const uint64_t incarnation = coordinator().server_incarnation();
    for (int shard : {1, 0}) {
      coordinator().OnShardEvent(shard, shards::ShardDiverged{incarnation, Round(1), "bucket 3"},
                                 cluster_->now());
    }
    EXPECT_EQ(Snapshot().rollbacks, 1) << "several shards tell of the same";
    EXPECT_THAT(Snapshot().divergence->text, HasSubstr("shard 1: bucket 3"));
    EXPECT_THAT(cluster_->observer().alarms, Not(Contains(HasSubstr("worker"))));
  }
}

TEST_F(CoordinatorDivergenceTest, CheckpointUnderWayIsGivenUp) {
  Start(Config(1));
  Train(4);
  const std::string directory = cluster_->sent().save_directories.back();
  Refuse(0, 4);
  EXPECT_THAT(cluster_->store().discarded, ElementsAre(directory));
  coordinator().OnShardEvent(
      0, shards::ShardSaved{coordinator().server_incarnation(), directory, "part 0"},
      cluster_->now());
  EXPECT_THAT(cluster_->store().discarded, ElementsAre(directory, directory)) << "written since";
}

TEST_F(CoordinatorDivergenceTest, OneSickWorkerIsDroppedAndTheOthersGoOn) {
  for (const int quorum : {0, 2}) {
    workers_.clear();
    Coordinator::Config config = Config(3);
    config.job.quorum = quorum;
    Start(config);
    Train(1);
    for (const TestWorker& worker : workers_) cluster_->Ask(worker);
    Refuse(1, 1);
    EXPECT_FALSE(IsAlive(1));
    EXPECT_THAT(cluster_->sent().commands, Contains("drop 2"));
    for (int worker : {0, 2}) {
      cluster_->Ask(workers_[worker], CoordinatorHarness::ReportOf(GrantOf(worker)));
    }
    EXPECT_EQ(Snapshot().state, "training");
    EXPECT_EQ(Snapshot().divergence, std::nullopt);
    // With a quorum, c is not in this round, because c reported the previous round late.
    EXPECT_EQ(cluster_->observer().rounds.back().workers, quorum == 0 ? 2 : 1);
    const std::vector<WorkerSnapshot> shown = Snapshot().workers;
    EXPECT_EQ(shown[1].state, "dropped");
    EXPECT_THAT(shown[1].reason, HasSubstr("element 7: NaN"));
  }
}

TEST_F(CoordinatorDivergenceTest, WhenNobodysNumbersAreFiniteTheRunHasDiverged) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync, job::Mode::kLocalSgd}) {
    workers_.clear();
    Start(Config(2, mode));
    Train(1);
    for (const TestWorker& worker : workers_) cluster_->Ask(worker);
    Refuse(0, 1);
    EXPECT_EQ(Snapshot().state, "training") << "b may still show that it is only a";
    Refuse(1, 1);
    EXPECT_EQ(Snapshot().state, "diverged") << NameOf(mode);
  }
}

TEST_F(CoordinatorDivergenceTest, LossThatIsNotFiniteCountsAsSuch) {
  Start(Config(2));
  for (const TestWorker& worker : workers_) cluster_->Ask(worker);
  messages::RoundReport report = CoordinatorHarness::ReportOf(GrantOf(0));
  report.loss_sum = std::nan("");
  EXPECT_EQ(coordinator().RequestGrant(workers_[0].life, report, cluster_->now()).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(Snapshot().state, "training");
  report = CoordinatorHarness::ReportOf(GrantOf(1));
  report.heldout_predictions = 3;
  report.heldout_loss_sum = std::numeric_limits<double>::infinity();
  const auto last = coordinator().RequestGrant(workers_[1].life, report, cluster_->now());
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->grant->kind, messages::Grant::Kind::kDone);
  EXPECT_THAT(last->grant->reason, HasSubstr("the loss of worker 'b' is not finite"));
}

TEST_F(CoordinatorDivergenceTest, LossThatNoTrainerCanHaveCountsAsNotFinite) {
  const auto refused = [&](double loss_sum) {
    Start(Config(2));
    for (const TestWorker& worker : workers_) cluster_->Ask(worker);
    messages::RoundReport report = CoordinatorHarness::ReportOf(GrantOf(0));
    report.loss_sum = loss_sum;
    const auto answer = coordinator().RequestGrant(workers_[0].life, report, cluster_->now());
    return absl::IsAborted(answer.status()) ? Message(answer.status()) : "";
  };
  EXPECT_THAT(refused(-1e300), HasSubstr("e+299; it must be from -0.01 to 3.4"));
  EXPECT_THAT(refused(1e300), HasSubstr("e+299; it must be from -0.01 to 3.4"));
  EXPECT_THAT(refused(-3.0), HasSubstr("is -1; it must be"));
  EXPECT_EQ(refused(-1e-6), "") << "rounding";
  EXPECT_EQ(refused(1e30), "");
}

TEST_F(CoordinatorDivergenceTest, EqualLossesOfTwoWorkersRaiseAnAlarm) {
  Start(Config(3));
  for (int round = 0; round < 4; ++round) {
    for (const TestWorker& worker : workers_) cluster_->Ask(worker);
    for (size_t w = 0; w < workers_.size(); ++w) {
      messages::RoundReport report = CoordinatorHarness::ReportOf(GrantOf(w));
      report.loss_sum = w == 1 ? 8.0 : 6.0 / (1.0 + round);
      cluster_->Ask(workers_[w], report);
    }
    const auto accused = Contains(AllOf(HasSubstr("'a'"), HasSubstr("'c'"), Not(HasSubstr("'b'"))));
    if (round < 2) {
      EXPECT_THAT(cluster_->observer().alarms, Not(accused)) << round;
    } else {
      EXPECT_THAT(cluster_->observer().alarms, accused) << round;
    }
  }
}

TEST_F(CoordinatorDivergenceTest, CountsThatCannotBeAreRefused) {
  Start(Config(2));
  for (const TestWorker& worker : workers_) cluster_->Ask(worker);
  const auto code_of = [&](const messages::RoundReport& report) {
    return coordinator().RequestGrant(workers_[0].life, report, cluster_->now()).status().code();
  };
  messages::RoundReport report = CoordinatorHarness::ReportOf(GrantOf(0));
  report.num_predictions = int64_t{1} << 62;
  EXPECT_EQ(code_of(report), absl::StatusCode::kInvalidArgument);
  report = CoordinatorHarness::ReportOf(GrantOf(0));
  report.heldout_correct = report.heldout_predictions + 1;
  EXPECT_EQ(code_of(report), absl::StatusCode::kInvalidArgument);
}

TEST_F(CoordinatorDivergenceTest, WorkerThatIsSickAgainAndAgainIsTurnedAway) {
  for (const int limit : {1, 3}) {
    workers_.clear();
    Coordinator::Config config = Config(2);
    config.divergence.nonfinite_limit = limit;
    Start(config);
    for (int time = 1; time <= limit; ++time) {
      for (const TestWorker& worker : workers_) cluster_->Ask(worker);
      Refuse(1, time);
      Refuse(1, time);  // another bucket reports the same fault
      EXPECT_FALSE(IsAlive(1));
      EXPECT_THAT(Snapshot().workers[1].reason,
                  HasSubstr(absl::StrCat("NaN or Inf ", time,
                                         time == 1 ? " time in a row" : " times in a row",
                                         " (--nonfinite_limit=", limit, ")")));
      cluster_->Ask(workers_[0], CoordinatorHarness::ReportOf(GrantOf(0)));
      if (time < limit) ComeBack(1);
    }
    EXPECT_THAT(Snapshot().workers[1].reason, HasSubstr("refused until"));
    const auto refused = cluster_->Register(workers_[1]);
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr(absl::StrCat("worker 'b' has sent NaN or Inf ", limit,
                                                         limit == 1 ? " time in" : " times in"))));
    TestWorker restarted = {"b", workers_[1].instance_id + 1, {}};
    EXPECT_TRUE(cluster_->Register(restarted).ok()) << "another process may do better";
  }
}

TEST_F(CoordinatorDivergenceTest, WhoSendsNanAgainAndAgainIsShutOutAlsoAsAnotherProcess) {
  Coordinator::Config config = Config(2);
  config.divergence.poison_limit = 2;
  Start(config);
  for (int time = 1; time <= 3; ++time) {
    for (const TestWorker& worker : workers_) cluster_->Ask(worker);
    Refuse(1, time);
    EXPECT_FALSE(IsAlive(1));
    cluster_->Ask(workers_[0], CoordinatorHarness::ReportOf(GrantOf(0)));
    ++workers_[1].instance_id;
    if (time < 3) ComeBack(1);
  }
  EXPECT_THAT(cluster_->Register(workers_[1]).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("worker 'b' is shut out: in 3 of 100 rounds"),
                             HasSubstr("or were not finite (--poison_limit=2)"),
                             HasSubstr("element 7: NaN"))));
}

TEST_F(CoordinatorDivergenceTest, FastWorkerIsNotHeldSickBeforeOthersHaveShownTheirNumbers) {
  Start(Config(2, job::Mode::kAsync));
  for (const TestWorker& worker : workers_) cluster_->Ask(worker);
  for (int time = 0; time < 10; ++time) {
    Refuse(0, time);
    ComeBack(0);
    GrantOf(0);
  }
  Refuse(1, 1);
  EXPECT_EQ(Snapshot().state, "diverged") << "it was the run, not a";
}

TEST_F(CoordinatorDivergenceTest, FiniteNumbersClearAWorker) {
  Start(Config(2));
  for (int time = 0; time < 10; ++time) {
    for (const TestWorker& worker : workers_) cluster_->Ask(worker);
    Refuse(1, 2 * time);
    cluster_->Ask(workers_[0], CoordinatorHarness::ReportOf(GrantOf(0)));
    ComeBack(1);
    for (const TestWorker& worker : workers_) cluster_->Ask(worker);
    for (int worker : {0, 1}) {
      cluster_->Ask(workers_[worker], CoordinatorHarness::ReportOf(GrantOf(worker)));
    }
  }
  EXPECT_EQ(Snapshot().state, "training");
}

TEST_F(CoordinatorDivergenceTest, WhoSendsWhatIsTooLongInTooManyRoundsIsShutOutUntilReadmitted) {
  Coordinator::Config config = Config(2);
  config.divergence.poison_limit = 2;
  Start(config);
  const auto too_long = [this](int64_t round) { TooLong(1, round); };
  too_long(0);
  too_long(1);
  EXPECT_TRUE(IsAlive(1));
  EXPECT_THAT(cluster_->observer().alarms, Not(Contains(HasSubstr("far longer")))) << "it happens";
  cluster_->Restart();
  cluster_->AttachAgain();
  too_long(150);
  too_long(151);
  EXPECT_TRUE(IsAlive(1)) << "the first two are long ago";
  too_long(152);
  EXPECT_FALSE(IsAlive(1));
  EXPECT_TRUE(IsAlive(0));
  const auto is_shut_out = StatusIs(
      absl::StatusCode::kFailedPrecondition,
      AllOf(HasSubstr("worker 'b' is shut out: in 3 of 100 rounds"), HasSubstr("--poison_limit=2"),
            HasSubstr("a norm of 90"), HasSubstr("psctl readmit b")));
  EXPECT_THAT(cluster_->Register(workers_[1]).status(), is_shut_out);
  TestWorker again = {"b", 4711, {}};
  EXPECT_THAT(cluster_->Register(again).status(), is_shut_out) << "another process, too";
  EXPECT_THAT(cluster_->observer().alarms, Contains(HasSubstr("worker 'b' is shut out")));
  cluster_->Restart();
  cluster_->AttachAgain();
  EXPECT_THAT(cluster_->Register(again).status(), is_shut_out);

  EXPECT_THAT(coordinator().Readmit("c", cluster_->now()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no worker 'c' is shut out")));
  EXPECT_OK(coordinator().Readmit("b", cluster_->now()));
  ASSERT_TRUE(cluster_->Register(again).ok());
  ASSERT_TRUE(cluster_->Join(again).ok());
  workers_[1] = again;
  too_long(153);
  EXPECT_TRUE(IsAlive(1)) << "it begins anew";
}

TEST_F(CoordinatorDivergenceTest, WhoHasACertificateIsShutOutWithAllItsNames) {
  Coordinator::Config config = Config(3);
  config.divergence.poison_limit = 1;
  Start(config);
  const auto register_as = [this](const std::string& name, const std::string& identity) {
    messages::RegisterCall call;
    call.name = name;
    call.instance_id = 4711;
    call.identity = identity;
    return coordinator().Register(call, cluster_->now());
  };
  const auto card = register_as("card.1", "card");
  ASSERT_OK(card);
  const auto sibling = register_as("card.2", "card");
  ASSERT_OK(sibling);
  for (int round = 0; round < 2; ++round) {
    coordinator().OnShardEvent(0,
                               sync::WorkerFault{.worker = card->life.worker,
                                                 .incarnation = card->life.incarnation,
                                                 .round = Round(round),
                                                 .kind = sync::WorkerFault::Kind::kTooLong,
                                                 .text = "a norm of 90"},
                               cluster_->now());
  }
  EXPECT_FALSE(coordinator().CheckLife(sibling->life).ok());
  EXPECT_TRUE(IsAlive(0));
  cluster_->Restart();
  cluster_->AttachAgain();
  for (const char* name : {"card", "card.1", "card.3"}) {
    EXPECT_THAT(
        register_as(name, "card"),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("worker 'card' is shut out with all names of its certificate"),
                       HasSubstr("psctl readmit card"))));
  }
  EXPECT_OK(register_as("cardinal", "cardinal"));
  EXPECT_OK(coordinator().Readmit("card.1", cluster_->now())) << "the name that people have seen";
  EXPECT_OK(register_as("card.3", "card"));
}

// Workers with one certificate may all be on one machine, so they count as one.
TEST_F(CoordinatorDivergenceTest, WorkersOfOneCertificateShutNobodyOut) {
  for (const bool is_one_certificate : {true, false}) {
    workers_.clear();
    Coordinator::Config config = Config(1);
    config.divergence.poison_limit = 1;
    Start(config);
    const auto everybody = [](absl::string_view) { return true; };
    EXPECT_EQ(coordinator().EvictWorkers(everybody, "", cluster_->now()), 1);
    std::vector<messages::WorkerLife> lives;
    for (const char* name : {"gpus.1", "gpus.2", "ann", "card"}) {
      messages::RegisterCall call;
      call.name = name;
      call.instance_id = 4711;
      call.identity = is_one_certificate ? std::string(name).substr(0, 4) : name;
      ASSERT_OK_AND_ASSIGN(const messages::Registration registration,
                           coordinator().Register(call, cluster_->now()));
      lives.push_back(registration.life);
      ASSERT_OK(coordinator().Join(lives.back(), coordinator().map()->layout.hash(), {},
                                   cluster_->now()));
    }
    for (const int64_t round : {0, 1}) {
      coordinator().OnShardEvent(0,
                                 sync::WorkerFault{.worker = lives[3].worker,
                                                   .incarnation = lives[3].incarnation,
                                                   .round = Round(round),
                                                   .kind = sync::WorkerFault::Kind::kOpposed,
                                                   .text = "cosine -0.5"},
                                 cluster_->now());
    }
    EXPECT_EQ(coordinator().CheckLife(lives[3]).ok(), is_one_certificate);
    EXPECT_THAT(cluster_->observer().alarms,
                Contains(HasSubstr(is_one_certificate ? "one certificate, 'gpus'"
                                                      : "worker 'card' is shut out")));
  }
}

TEST_F(CoordinatorDivergenceTest, RoundsOfAllWorkersOfACertificateAreCountedTogether) {
  Coordinator::Config config = Config(3);
  config.divergence.poison_limit = 3;
  Start(config);
  const auto register_as = [this](const std::string& name) {
    messages::RegisterCall call;
    call.name = name;
    call.instance_id = std::hash<std::string>()(name);
    call.identity = name.substr(0, 4);
    return coordinator().Register(call, cluster_->now());
  };
  const auto too_long = [this](const messages::WorkerLife& life, int64_t round) {
    coordinator().OnShardEvent(0,
                               sync::WorkerFault{.worker = life.worker,
                                                 .incarnation = life.incarnation,
                                                 .round = Round(round),
                                                 .kind = sync::WorkerFault::Kind::kTooLong,
                                                 .text = "a norm of 90"},
                               cluster_->now());
  };
  ASSERT_OK_AND_ASSIGN(const messages::Registration first, register_as("card.1"));
  ASSERT_OK_AND_ASSIGN(const messages::Registration other, register_as("gpus.1"));
  too_long(first.life, 0);
  too_long(first.life, 1);
  too_long(other.life, 5);
  ASSERT_OK(coordinator().BeginLeave(first.life, cluster_->now()));
  cluster_->Restart();
  cluster_->AttachAgain();
  ASSERT_OK_AND_ASSIGN(const messages::Registration second, register_as("card.2"));
  too_long(second.life, 1);
  too_long(second.life, 2);
  EXPECT_OK(coordinator().CheckLife(second.life)) << "one of the rounds is the same";
  too_long(second.life, 3);
  EXPECT_THAT(
      register_as("card.3").status(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("worker 'card' is shut out with all names of its certificate"),
                     HasSubstr("in 4 of 100"))));
  EXPECT_OK(coordinator().CheckLife(other.life));

  ASSERT_OK(coordinator().Readmit("card", cluster_->now()));
  ASSERT_OK_AND_ASSIGN(const messages::Registration third, register_as("card.1"));
  too_long(third.life, 4);
  EXPECT_OK(coordinator().CheckLife(third.life)) << "all begin anew";
}

TEST_F(CoordinatorDivergenceTest, CheckpointsKeepWhoIsShutOut) {
  Coordinator::Config config = Config(2);
  config.divergence.poison_limit = 1;
  config.job.keep_workers = 1;
  Start(config);
  Train(4);
  cluster_->FinishSave();
  for (const int64_t round : {4, 5}) TooLong(1, round);
  const auto is_shut_out =
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("worker 'b' is shut out"));
  EXPECT_THAT(cluster_->Register(workers_[1]).status(), is_shut_out);
  TestWorker b = workers_[1];
  workers_.pop_back();
  Train(1);
  ASSERT_EQ(cluster_->sent().save_directories.size(), 2) << "out of turn";
  cluster_->FinishSave();
  const std::vector<checkpoints::CheckpointRecord> saved = cluster_->store().published;

  // The job returns to a checkpoint from before any worker was shut out. Then a new checkpoint is
  // made.
  ASSERT_OK(coordinator().RollBack(Round(4), "", cluster_->now()));
  const auto choice_of = [&](const checkpoints::CheckpointRecord& record) {
    return RestoreChoice{.source = shards::CheckpointSource{record.final_directory},
                         .state = *CoordinatorStateFromJson(CoordinatorStateToJson(record.state)),
                         .layout = record.layout,
                         .server_incarnation = 2000};
  };
  EXPECT_THAT(saved[0].state.orders.quarantine, IsEmpty());
  coordinator().OnRestoreChosen(choice_of(saved[0]), cluster_->now());
  cluster_->LoadAll();
  EXPECT_THAT(cluster_->Register(b).status(), is_shut_out);
  ASSERT_EQ(cluster_->sent().save_directories.size(), 3);
  cluster_->FinishSave();
  EXPECT_EQ(cluster_->store().published.back().round, Round(4));
  EXPECT_EQ(cluster_->store().published.back().state.orders.quarantine,
            saved[1].state.orders.quarantine);

  // Another process starts from the checkpoint, without a journal.
  CoordinatorHarness restarted(config);
  restarted.Start(choice_of(saved[1]));
  EXPECT_THAT(restarted.Register(b).status(), is_shut_out);
  EXPECT_THAT(restarted.sent().save_directories, IsEmpty());
  EXPECT_OK(restarted.coordinator().Readmit("b", restarted.now()));
  EXPECT_OK(restarted.Register(b));
}

TEST_F(CoordinatorDivergenceTest, WhoSendsWhatIsTooLongAgainAndAgainIsAnAlarm) {
  Start(Config(2));
  for (int round = 0; round < faults::DivergencePolicy::kPoisonAlarm; ++round) {
    const auto is_named = Contains(HasSubstr("worker 'b' sends contributions that are far longer"));
    EXPECT_THAT(cluster_->observer().alarms, Not(is_named)) << round;
    const messages::WorkerLife& life = workers_[1].life;
    coordinator().OnShardEvent(0,
                               sync::WorkerFault{.worker = life.worker,
                                                 .incarnation = life.incarnation,
                                                 .round = Round(round),
                                                 .kind = sync::WorkerFault::Kind::kTooLong,
                                                 .text = "bucket 0: a norm of 90"},
                               cluster_->now());
  }
  EXPECT_THAT(cluster_->observer().alarms,
              Contains(HasSubstr("worker 'b' sends contributions that are far longer")));
  EXPECT_TRUE(IsAlive(1));
}

TEST_F(CoordinatorDivergenceTest, WhoOpposesTheOthersIsAnAlarmAndShutOut) {
  Coordinator::Config config = Config(2);
  config.divergence.poison_limit = 2;
  Start(config);
  const messages::WorkerLife& life = workers_[1].life;
  sync::WorkerFault fault = {.worker = life.worker,
                             .incarnation = life.incarnation,
                             .round = Round(60),
                             .kind = sync::WorkerFault::Kind::kOpposed,
                             .text = "the cosine was -0.3"};
  coordinator().OnShardEvent(0, fault, cluster_->now());
  EXPECT_THAT(cluster_->observer().alarms,
              Contains(HasSubstr(
                  "worker 'b' sends contributions that point against those of other workers")));
  EXPECT_THAT(cluster_->observer().events, Contains(HasSubstr("the cosine was -0.3")));
  fault.round = Round(61);
  fault.kind = sync::WorkerFault::Kind::kTooLong;
  coordinator().OnShardEvent(0, fault, cluster_->now());
  EXPECT_TRUE(IsAlive(1));
  fault.round = Round(62);
  fault.kind = sync::WorkerFault::Kind::kOpposed;
  coordinator().OnShardEvent(0, fault, cluster_->now());
  EXPECT_FALSE(IsAlive(1)) << "rounds of both kinds count";
  EXPECT_THAT(cluster_->Register(workers_[1]).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the cosine was -0.3")));
}

TEST_F(CoordinatorDivergenceTest, WhoSendsNoiseIsNamedAndStays) {
  Start(Config(2));
  const messages::WorkerLife& life = workers_[1].life;
  for (int64_t round = 0; round < 200; ++round) {
    coordinator().OnShardEvent(0,
                               sync::WorkerFault{.worker = life.worker,
                                                 .incarnation = life.incarnation,
                                                 .round = Round(round),
                                                 .kind = sync::WorkerFault::Kind::kUnrelated,
                                                 .text = "the cosine was 0.001"},
                               cluster_->now());
  }
  EXPECT_THAT(cluster_->observer().alarms,
              Contains(HasSubstr("worker 'b' sends contributions that have nothing")));
  EXPECT_THAT(cluster_->observer().events, Contains(HasSubstr("the cosine was 0.001")).Times(1));
  EXPECT_TRUE(IsAlive(1));
}

TEST_F(CoordinatorDivergenceTest, WorkerThatReportsWithoutPushingIsDropped) {
  Start(Config(2));
  Train(1);
  EXPECT_THAT(cluster_->sent().commands, Contains("close 0 by 2"));
  const messages::WorkerLife& liar = workers_[1].life;
  const sync::WorkerFault fault = {.worker = liar.worker,
                                   .incarnation = liar.incarnation,
                                   .round = Round(0),
                                   .kind = sync::WorkerFault::Kind::kNotPushed,
                                   .text = "worker 2 has reported round 0 and not pushed"};
  coordinator().OnShardEvent(0, fault, cluster_->now());
  EXPECT_FALSE(IsAlive(1));
  EXPECT_TRUE(IsAlive(0));
  EXPECT_THAT(cluster_->sent().commands, Contains("drop 2"));
  EXPECT_THAT(Snapshot().workers[1].reason, HasSubstr("reported round 0 and not pushed"));
  EXPECT_THAT(cluster_->observer().alarms,
              Contains(HasSubstr("worker 'b' reports rounds whose contributions it has not sent")));
  EXPECT_EQ(Snapshot().divergence, std::nullopt);
}

}  // namespace
}  // namespace lodestar::coordinator
