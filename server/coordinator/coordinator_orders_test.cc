// SPDX-License-Identifier: Apache-2.0

// Tests of the orders of operators: to pause and resume, to change the learning rate, to evict a
// worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_state_json.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::HasSubstr;

class CoordinatorOrdersTest : public ::testing::Test {
 protected:
  static Coordinator::Config Config(int workers = 2, job::Mode mode = job::Mode::kSync) {
    Coordinator::Config config = TestConfig(workers);
    config.job.mode = mode;
    config.job.schedule.peak = 0.4;
    config.job.schedule.total_rounds = 100;
    config.checkpoint_dir = "ckpt";
    config.checkpoint_schedule.every_rounds = 50;
    return config;
  }

  void Start(const Coordinator::Config& config) {
    cluster_.emplace(config);
    cluster_->Start();
    for (int i = 0; i < config.job.min_workers; ++i) {
      workers_.push_back(cluster_->Add(std::string(1, static_cast<char>('a' + i))));
    }
  }

  void AskAll() {
    for (const TestWorker& worker : workers_) cluster_->Ask(worker);
  }
  void ReportAll() {
    for (const TestWorker& worker : workers_) {
      cluster_->Ask(worker, CoordinatorHarness::ReportOf(*cluster_->Ask(worker).grant));
    }
  }

  static RestoreChoice ChoiceOf(const checkpoints::CheckpointRecord& record) {
    return RestoreChoice{.source = shards::CheckpointSource{record.final_directory},
                         .state = *CoordinatorStateFromJson(CoordinatorStateToJson(record.state)),
                         .layout = record.layout,
                         .server_incarnation = 2000};
  }

  Coordinator& coordinator() { return cluster_->coordinator(); }
  ClusterSnapshot Snapshot() { return coordinator().Snapshot(cluster_->now()); }

  std::optional<CoordinatorHarness> cluster_;
  std::vector<TestWorker> workers_;
};

TEST_F(CoordinatorOrdersTest, APausedJobEndsItsRoundAndOpensNone) {
  Start(Config());
  AskAll();
  ASSERT_OK(coordinator().Pause("the card is swapped", cluster_->now()));
  EXPECT_EQ(Snapshot().state, "training") << "a round is open";
  EXPECT_THAT(Snapshot().waiting_for, HasSubstr("round 0 waits for a, b"));
  ReportAll();
  EXPECT_EQ(Snapshot().state, "paused");
  ASSERT_TRUE(Snapshot().pause.has_value());
  EXPECT_EQ(Snapshot().pause->reason, "the card is swapped");
  const GrantAnswer answer = cluster_->Ask(workers_[0]);
  EXPECT_FALSE(answer.grant.has_value());
  EXPECT_EQ(answer.pending_reason, "paused: the card is swapped; psctl resume continues the job");

  // However long the pause lasts, no worker is dropped, and the job does not count as held up.
  for (int i = 0; i < 100; ++i) cluster_->Pass(absl::Seconds(3), workers_);
  EXPECT_OK(coordinator().CheckLife(workers_[0].life));
  EXPECT_OK(coordinator().CheckLife(workers_[1].life));
  EXPECT_FALSE(Snapshot().is_held_up);
  EXPECT_EQ(Snapshot().pause->age, absl::Seconds(300));

  ASSERT_OK(coordinator().Resume(cluster_->now()));
  EXPECT_TRUE(cluster_->Ask(workers_[0]).grant.has_value());
  EXPECT_EQ(Snapshot().state, "training");
  EXPECT_FALSE(Snapshot().pause.has_value());
  EXPECT_THAT(coordinator().Resume(cluster_->now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "the job is not paused"));
}

TEST_F(CoordinatorOrdersTest, AsynchronousWorkersWaitAsWell) {
  Start(Config(2, job::Mode::kAsync));
  AskAll();
  ASSERT_OK(coordinator().Pause("", cluster_->now()));
  ReportAll();
  EXPECT_FALSE(cluster_->Ask(workers_[0]).grant.has_value());
  EXPECT_EQ(Snapshot().state, "paused");
  ASSERT_OK(coordinator().Resume(cluster_->now()));
  EXPECT_TRUE(cluster_->Ask(workers_[0]).grant.has_value());
}

TEST_F(CoordinatorOrdersTest, APauseComesBeforeTheFinalEvaluation) {
  Coordinator::Config config = Config(1);
  config.job.schedule.total_rounds = 1;
  Start(config);
  AskAll();
  ASSERT_OK(coordinator().Pause("", cluster_->now()));
  ReportAll();
  EXPECT_FALSE(cluster_->Ask(workers_[0]).grant.has_value());
  EXPECT_EQ(Snapshot().state, "paused");
  cluster_->FinishSave();
  ASSERT_OK(coordinator().Resume(cluster_->now()));
  const std::optional<messages::Grant> grant = cluster_->Ask(workers_[0]).grant;
  ASSERT_TRUE(grant.has_value());
  EXPECT_GT(grant->num_heldout_samples, 0);
}

TEST_F(CoordinatorOrdersTest, APausedJobTakesCheckpointsAndCanBeStopped) {
  Start(Config());
  AskAll();
  ReportAll();
  AskAll();
  ASSERT_OK(coordinator().Pause("", cluster_->now()));
  ReportAll();
  ASSERT_EQ(cluster_->sent().save_directories.size(), 1) << "at once";
  cluster_->FinishSave();
  ASSERT_OK(coordinator().RequestCheckpoint(cluster_->now()).status());
  EXPECT_EQ(cluster_->sent().save_directories.size(), 1) << "nothing has changed since";
  coordinator().RequestStop("enough", cluster_->now());
  EXPECT_FALSE(Snapshot().pause.has_value());
  cluster_->FinishSave();
  const std::optional<messages::Grant> grant = cluster_->Ask(workers_[0]).grant;
  ASSERT_TRUE(grant.has_value());
  EXPECT_EQ(grant->kind, messages::Grant::Kind::kDone);
  EXPECT_THAT(coordinator().Pause("", cluster_->now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("enough")));
}

TEST_F(CoordinatorOrdersTest, AProcessThatGoesOnStaysPaused) {
  Start(Config());
  AskAll();
  ReportAll();
  ASSERT_OK(coordinator().Pause("over night", cluster_->now()));
  ReportAll();
  cluster_->FinishSave();
  const checkpoints::CheckpointRecord saved = cluster_->store().published.back();
  cluster_->Restart();
  cluster_->AttachAgain();
  EXPECT_FALSE(cluster_->Ask(workers_[0]).grant.has_value());
  EXPECT_EQ(Snapshot().state, "paused");

  // Another process starts from the checkpoint, without a journal.
  CoordinatorHarness restarted(Config());
  restarted.Start(ChoiceOf(saved));
  EXPECT_THAT(restarted.observer().events,
              Contains("paused: over night; psctl resume continues the job"));
  const TestWorker a = restarted.Add("a");
  const TestWorker b = restarted.Add("b");
  restarted.Ask(a);
  EXPECT_EQ(restarted.Ask(b).pending_reason, "paused: over night; psctl resume continues the job");
  ASSERT_OK(restarted.coordinator().Resume(restarted.now()));
  ASSERT_EQ(restarted.sent().save_directories.size(), 1) << "so that the next one is not paused";
  EXPECT_TRUE(restarted.Ask(b).grant.has_value());
}

TEST_F(CoordinatorOrdersTest, TheScheduleGoesOnFromTheRateThatIsSet) {
  Coordinator::Config config = Config(1);
  config.job.schedule.kind = job::ScheduleKind::kCosine;
  config.job.schedule.minimum = 0.1;
  Start(config);
  const double before = cluster_->Ask(workers_[0]).grant->learning_rates[0];
  ASSERT_OK_AND_ASSIGN(const LearningRateChange change,
                       coordinator().SetLearningRate(0.2, cluster_->now()));
  EXPECT_THAT(change.before, DoubleNear(before, 1e-3));
  EXPECT_EQ(change.after, 0.2);
  EXPECT_EQ(cluster_->Ask(workers_[0]).grant->learning_rates[0], before) << "it is handed out";
  ReportAll();
  EXPECT_THAT(cluster_->Ask(workers_[0]).grant->learning_rates[0], DoubleNear(0.2, 1e-12));
  EXPECT_THAT(Snapshot().learning_rate_scale, DoubleNear(change.scale, 1e-12));
  while (cluster_->Ask(workers_[0]).grant->round < Round(99)) ReportAll();
  EXPECT_THAT(cluster_->Ask(workers_[0]).grant->learning_rates[0],
              DoubleNear(change.scale * config.job.schedule.At(99), 1e-12));
}

TEST_F(CoordinatorOrdersTest, ARestartAndARollbackKeepTheRate) {
  Coordinator::Config config = Config(1);
  Start(config);
  AskAll();
  ASSERT_OK(coordinator().RequestCheckpoint(cluster_->now()).status());
  ReportAll();
  cluster_->FinishSave();
  const checkpoints::CheckpointRecord before = cluster_->store().published.back();
  ASSERT_OK(coordinator().SetLearningRate(0.1, cluster_->now()).status());
  ReportAll();
  ASSERT_EQ(cluster_->sent().save_directories.size(), 2) << "out of turn";
  cluster_->FinishSave();
  const checkpoints::CheckpointRecord after = cluster_->store().published.back();

  CoordinatorHarness restarted(config);
  restarted.Start(ChoiceOf(after));
  TestWorker a = restarted.Add("a");
  EXPECT_THAT(restarted.Ask(a).grant->learning_rates[0], DoubleNear(0.1, 1e-12));

  ASSERT_OK(coordinator().RollBack(before.round, "", cluster_->now()));
  coordinator().OnRestoreChosen(ChoiceOf(before), cluster_->now());
  cluster_->LoadAll();
  a = cluster_->Add("a");
  EXPECT_THAT(cluster_->Ask(a).grant->learning_rates[0], DoubleNear(0.1, 1e-12));
  ASSERT_EQ(cluster_->sent().save_directories.size(), 3) << "what is on disk has another rate";
}

TEST_F(CoordinatorOrdersTest, OrdersWaitUntilThoseOnDiskAreKnown) {
  cluster_.emplace(Config());
  const auto is_early = StatusIs(absl::StatusCode::kUnavailable, HasSubstr("not ready"));
  EXPECT_THAT(coordinator().Pause("", cluster_->now()), is_early);
  EXPECT_THAT(coordinator().Resume(cluster_->now()), is_early);
  EXPECT_THAT(coordinator().Evict("a", "", cluster_->now()), is_early);
  EXPECT_THAT(coordinator().Readmit("a", cluster_->now()), is_early);
  EXPECT_THAT(coordinator().SetLearningRate(0.1, cluster_->now()), is_early);
  cluster_->Start();
  EXPECT_OK(coordinator().Pause("", cluster_->now()));
}

TEST_F(CoordinatorOrdersTest, ACheckpointForAnOrderThatAServerHeldUpIsTakenOnceItIsBack) {
  Start(Config());
  AskAll();
  ReportAll();
  AskAll();
  ASSERT_OK(coordinator().RequestCheckpoint(cluster_->now()).status());
  ReportAll();
  cluster_->FinishSave();
  AskAll();
  ASSERT_OK(coordinator().Pause("", cluster_->now()));
  cluster_->DetachAll();
  cluster_->AttachAgain();
  ReportAll();
  EXPECT_EQ(cluster_->sent().save_directories.size(), 2);
}

TEST_F(CoordinatorOrdersTest, AJobThatIsOverIsNotPaused) {
  Coordinator::Config config = Config(1);
  config.job.schedule.total_rounds = 1;
  cluster_.emplace(config);
  cluster_->Start();
  messages::DatasetInfo without_heldout = TestDataset();
  without_heldout.num_heldout_samples = 0;
  workers_.push_back(cluster_->Add("a", without_heldout));
  AskAll();
  ASSERT_OK(coordinator().Pause("", cluster_->now()));
  EXPECT_THAT(coordinator().SetLearningRate(0.1, cluster_->now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no further round")));
  ReportAll();
  EXPECT_EQ(Snapshot().state, "saving");
  EXPECT_FALSE(Snapshot().pause.has_value());
  cluster_->FinishSave();
  EXPECT_FALSE(cluster_->store().published.back().state.orders.pause.has_value());
}

TEST_F(CoordinatorOrdersTest, TheTimeOfAPauseIsNoneOfTraining) {
  Start(Config(1));
  AskAll();
  cluster_->Pass(absl::Seconds(1), workers_);
  ASSERT_OK(coordinator().Pause("", cluster_->now()));
  ReportAll();
  for (int i = 0; i < 100; ++i) cluster_->Pass(absl::Seconds(3), workers_);
  ASSERT_OK(coordinator().Resume(cluster_->now()));
  AskAll();
  cluster_->Pass(absl::Seconds(1), workers_);
  ReportAll();
  EXPECT_EQ(cluster_->observer().rounds.back().trained_time, absl::Seconds(2));
}

TEST_F(CoordinatorOrdersTest, ARateThatCannotBeIsRefused) {
  Start(Config(1));
  for (const double rate : {0.0, -1.0, 1e9, std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(coordinator().SetLearningRate(rate, cluster_->now()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 0")))
        << rate;
  }
  EXPECT_EQ(Snapshot().learning_rate_scale, 1.0);
  cluster_.reset();
  workers_.clear();
  Start(Config(1, job::Mode::kAsync));
  EXPECT_THAT(coordinator().SetLearningRate(0.1, cluster_->now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--mode=async")));
}

TEST_F(CoordinatorOrdersTest, WhoIsEvictedStaysOut) {
  Coordinator::Config config = Config();
  config.job.keep_workers = 1;
  Start(config);
  AskAll();
  ASSERT_OK(coordinator().Evict("b", "its fan is loud", cluster_->now()));
  EXPECT_THAT(coordinator().CheckLife(workers_[1].life),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("its fan is loud")));
  const auto is_out = StatusIs(absl::StatusCode::kFailedPrecondition,
                               "worker 'b' is shut out: an operator has evicted this worker: its "
                               "fan is loud; psctl readmit b lets it join again");
  EXPECT_THAT(cluster_->Register(workers_[1]).status(), is_out);
  // The round is closed without the evicted worker.
  cluster_->Ask(workers_[0], CoordinatorHarness::ReportOf(*cluster_->Ask(workers_[0]).grant));
  cluster_->FinishSave();
  const checkpoints::CheckpointRecord saved = cluster_->store().published.back();

  const auto is_shown = ::testing::Contains(::testing::AllOf(
      ::testing::Field(&WorkerSnapshot::name, "b"),
      ::testing::Field(&WorkerSnapshot::state, "refused"),
      ::testing::Field(&WorkerSnapshot::reason, HasSubstr("psctl readmit b lets it join again"))));
  EXPECT_THAT(coordinator().Snapshot(cluster_->now() + absl::Hours(2)).workers, is_shown)
      << "as long as it is out";

  CoordinatorHarness restarted(config);
  restarted.Start(ChoiceOf(saved));
  EXPECT_THAT(restarted.coordinator().Snapshot(restarted.now()).workers, is_shown);
  EXPECT_THAT(restarted.Register(workers_[1]).status(), is_out);

  ASSERT_OK(coordinator().Readmit("b", cluster_->now()));
  EXPECT_OK(cluster_->Register(workers_[1]));
  EXPECT_THAT(coordinator().Snapshot(cluster_->now()).workers, ::testing::Not(is_shown));
  EXPECT_THAT(coordinator().Evict("nobody", "", cluster_->now()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("there is no worker 'nobody'")));
}

}  // namespace
}  // namespace lodestar::coordinator
