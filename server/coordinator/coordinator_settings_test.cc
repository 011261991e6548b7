// SPDX-License-Identifier: Apache-2.0

// Tests of job settings that the first client proposes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Coordinator::Config ClientConfig() {
  Coordinator::Config config = TestConfig();
  config.job.model = *params::ModelPreset("client");
  config.job.global_batch_size = 0;
  config.job.batch_size = 12;
  config.num_shards = 2;
  return config;
}

class CoordinatorSettingsTest : public testing::Test {
 protected:
  void Start(const Coordinator::Config& config = ClientConfig()) {
    cluster_ = std::make_unique<CoordinatorHarness>(config);
    cluster_->Start({.source = shards::ClientSource{}, .server_incarnation = 9});
    ASSERT_EQ(coordinator().phase(), CoordinatorPhase::kAwaitingLayout);
  }

  Coordinator& coordinator() { return cluster_->coordinator(); }

  static messages::RegisterCall CallOf(const std::string& name, job::ProposedSettings proposed,
                                       const std::string& tensor_name = "w") {
    params::TensorSpec tensor;
    tensor.name = tensor_name;
    tensor.shape = {8, 8};
    messages::RegisterCall call = {.name = name,
                                   .instance_id = std::hash<std::string>()(name),
                                   .device = "",
                                   .peer = "ipv4:10.0.0.1:5",
                                   .layout = *params::Layout::FromTensors({tensor})};
    call.proposed = proposed;
    return call;
  }

  absl::StatusOr<messages::Registration> Register(const std::string& name,
                                                  job::ProposedSettings proposed) {
    return coordinator().Register(CallOf(name, proposed), cluster_->now());
  }

  // Registers a client that proposes settings. Registers it again once the servers are ready.
  messages::Registration Enter(const std::string& name, job::ProposedSettings proposed) {
    EXPECT_THAT(Register(name, proposed), StatusIs(absl::StatusCode::kUnavailable));
    cluster_->LoadAll();
    const absl::StatusOr<messages::Registration> entered = Register(name, proposed);
    EXPECT_OK(entered);
    return entered.value_or(messages::Registration());
  }

  std::unique_ptr<CoordinatorHarness> cluster_;
};

const job::ProposedSettings kMomentum = {.optimizer = job::OptimizerKind::kMomentum,
                                         .momentum = 0.5,
                                         .learning_rate = 0.25,
                                         .batch_size = 3};
const job::ProposedSettings kSgd = {.optimizer = job::OptimizerKind::kSgd, .learning_rate = 2.0};

TEST_F(CoordinatorSettingsTest, ThoseOfTheFirstClientAreTheJobs) {
  Start();
  const messages::Registration first = Enter("first", kMomentum);
  EXPECT_EQ(first.job.optimizer.kind, job::OptimizerKind::kMomentum);
  EXPECT_EQ(first.job.optimizer.momentum, 0.5);
  EXPECT_EQ(first.job.schedule.peak, 0.25);
  EXPECT_EQ(first.job.batch_size, 3);
  ASSERT_EQ(cluster_->sent().assignments.size(), 1);
  EXPECT_EQ(cluster_->sent().assignments[0].job.optimizer, first.job.optimizer);
  EXPECT_EQ(cluster_->sent().assignments[0].job.schedule.peak, 0.25);
  ASSERT_EQ(cluster_->observer().jobs.size(), 1);
  EXPECT_EQ(cluster_->observer().jobs[0].optimizer, first.job.optimizer);
  EXPECT_EQ(coordinator().Snapshot(cluster_->now()).job.optimizer, first.job.optimizer);
  EXPECT_THAT(cluster_->observer().events,
              Contains(AllOf(HasSubstr("proposed by name=first peer=ipv4:10.0.0.1:5: used "),
                             HasSubstr("optimizer=momentum"), HasSubstr("batch_size=3"))));
  // The settings that other clients propose are ignored.
  const absl::StatusOr<messages::Registration> second = Register("second", kSgd);
  ASSERT_OK(second);
  EXPECT_EQ(second->job.optimizer, first.job.optimizer);
  // The work that is handed out uses the settings of the first client.
  TestWorker worker{"first", 1, first.life};
  ASSERT_OK(cluster_->Join(worker));
  const GrantAnswer answer = cluster_->Ask(worker);
  ASSERT_TRUE(answer.grant.has_value()) << answer.pending_reason;
  EXPECT_EQ(answer.grant->num_samples, 3);
  EXPECT_EQ(answer.grant->learning_rates, std::vector<double>{0.25});
}

TEST_F(CoordinatorSettingsTest, TheOperatorsStay) {
  Coordinator::Config config = ClientConfig();
  config.job.optimizer.kind = job::OptimizerKind::kAdamW;
  config.given = {"optimizer", "batch_size"};
  Start(config);
  const messages::Registration first = Enter("first", kMomentum);
  EXPECT_EQ(first.job.optimizer, config.job.optimizer);
  EXPECT_EQ(first.job.batch_size, 12);
  EXPECT_EQ(first.job.schedule.peak, 0.25);
  EXPECT_THAT(cluster_->observer().events,
              Contains(AllOf(HasSubstr(": used learning_rate=0.25; not used"),
                             HasSubstr("batch_size=3, optimizer=momentum, momentum=0.5"))));
}

TEST_F(CoordinatorSettingsTest, WithoutProposalTheDefaultsStay) {
  Start();
  const messages::Registration first = Enter("first", {});
  EXPECT_EQ(first.job.optimizer, ClientConfig().job.optimizer);
  EXPECT_THAT(cluster_->observer().events, Not(Contains(HasSubstr("proposed"))));
}

TEST_F(CoordinatorSettingsTest, WhatTheJobCannotHaveIsRefusedAndTheNextOnesCount) {
  Start();
  job::ProposedSettings bad = kMomentum;
  bad.momentum = 1.5;
  EXPECT_THAT(Register("first", bad),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("settings that this program proposes are refused"),
                             HasSubstr("--momentum=1.5"))));
  EXPECT_EQ(coordinator().phase(), CoordinatorPhase::kAwaitingLayout);
  EXPECT_EQ(Enter("second", kSgd).job.optimizer.kind, job::OptimizerKind::kSgd);
}

TEST_F(CoordinatorSettingsTest, MemoryIsCountedWithTheOptimizerThatResults) {
  Coordinator::Config config = ClientConfig();
  // Each of the two servers has 32 elements. Its memory is enough for weights, sums and staging,
  // but not for the two state vectors of AdamW.
  config.memory = {.total_bytes = 720, .available_bytes = 720, .limited_by = "the test"};
  config.job.bucket_bytes = 32 * 4;
  config.staging_bytes = 1;
  Start(config);
  EXPECT_THAT(Register("first", {.optimizer = job::OptimizerKind::kAdamW}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("optimizer state")));
  EXPECT_EQ(Enter("second", kSgd).job.optimizer.kind, job::OptimizerKind::kSgd);
}

TEST_F(CoordinatorSettingsTest, IfTheFirstIsLostBeforeItsWeightsCameTheNextOnesCount) {
  Start();
  const messages::Registration first = Enter("first", kMomentum);
  ASSERT_TRUE(first.needs_initial_weights);
  cluster_->Pass(absl::Seconds(11));
  EXPECT_THAT(Register("second", kSgd), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(cluster_->store().restores, 2);
  // A third client that comes meanwhile changes nothing.
  EXPECT_THAT(Register("third", kMomentum), StatusIs(absl::StatusCode::kUnavailable));
  coordinator().OnRestoreChosen({{.source = shards::ClientSource{}, .server_incarnation = 9}},
                                cluster_->now());
  cluster_->LoadAll();
  const absl::StatusOr<messages::Registration> second = Register("second", kSgd);
  ASSERT_OK(second);
  EXPECT_TRUE(second->needs_initial_weights);
  EXPECT_GT(second->server_incarnation, first.server_incarnation);
  EXPECT_EQ(second->job.optimizer.kind, job::OptimizerKind::kSgd);
  EXPECT_EQ(second->job.optimizer.momentum, ClientConfig().job.optimizer.momentum)
      << "nothing is left of the first one's";
  EXPECT_EQ(cluster_->sent().assignments.back().job.optimizer.kind, job::OptimizerKind::kSgd);
}

TEST_F(CoordinatorSettingsTest, IfTheFirstIsLostBeforeItsWeightsCameTheNextLayoutCounts) {
  Start();
  Enter("first", kSgd);
  const messages::RegisterCall other = CallOf("second", kSgd, "v");
  EXPECT_THAT(coordinator().Register(other, cluster_->now()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'w'")))
      << "the first one is there, and may bring the weights";
  cluster_->Pass(absl::Seconds(11));
  EXPECT_THAT(coordinator().Register(other, cluster_->now()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("start again")));
  coordinator().OnRestoreChosen({{.source = shards::ClientSource{}, .server_incarnation = 9}},
                                cluster_->now());
  cluster_->LoadAll();
  const absl::StatusOr<messages::Registration> second =
      coordinator().Register(other, cluster_->now());
  ASSERT_OK(second);
  EXPECT_TRUE(second->needs_initial_weights);
  EXPECT_EQ(second->map->layout.tensors()[0].name, "v");
  EXPECT_THAT(Register("first", kSgd), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(CoordinatorSettingsTest, AnotherOneSuppliesTheWeightsThatTheFirstHoldsBack) {
  Start();
  const messages::Registration first = Enter("first", kSgd);
  cluster_->Pass(absl::Minutes(30), {{"first", 1, first.life}});
  EXPECT_TRUE(Register("first", kSgd)->needs_initial_weights) << "nobody waits for it";
  const absl::StatusOr<messages::Registration> second = Register("second", kSgd);
  ASSERT_OK(second);
  EXPECT_FALSE(second->needs_initial_weights);
  EXPECT_THAT(coordinator().Snapshot(cluster_->now()).waiting_for,
              HasSubstr("waits for first to supply the initial weights"));
  cluster_->Pass(absl::Minutes(11), {{"first", 1, first.life}, {"second", 2, second->life}});
  EXPECT_THAT(Register("first", kSgd), StatusIs(absl::StatusCode::kUnavailable,
                                                HasSubstr("did not supply the initial weights")));
  EXPECT_TRUE(Register("second", kSgd)->needs_initial_weights);
  const absl::StatusOr<messages::Registration> again = Register("first", kSgd);
  ASSERT_OK(again);
  EXPECT_FALSE(again->needs_initial_weights);
}

TEST_F(CoordinatorSettingsTest, WhoDoesNotComeBackWithTheWeightsIsWaitedForOnlySoLong) {
  Start();
  EXPECT_THAT(Register("first", kMomentum), StatusIs(absl::StatusCode::kUnavailable));
  cluster_->LoadAll();
  // As long as the first client may come back, a second client does not make the servers start
  // over.
  EXPECT_THAT(Register("second", kSgd),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("waits for first, which gave the job's settings")));
  EXPECT_EQ(cluster_->store().restores, 1);
  cluster_->Pass(absl::Seconds(7));
  EXPECT_THAT(Register("second", kSgd),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("start again")));
  EXPECT_EQ(cluster_->store().restores, 2);
  coordinator().OnRestoreChosen({{.source = shards::ClientSource{}, .server_incarnation = 9}},
                                cluster_->now());
  cluster_->LoadAll();
  EXPECT_THAT(Register("first", kMomentum), StatusIs(absl::StatusCode::kUnavailable))
      << "now it is the other way round";
  const absl::StatusOr<messages::Registration> second = Register("second", kSgd);
  ASSERT_OK(second);
  EXPECT_TRUE(second->needs_initial_weights);
  EXPECT_EQ(second->job.optimizer.kind, job::OptimizerKind::kSgd);
  // Once the second client has been told to bring the weights, the first client can register too.
  EXPECT_OK(Register("first", kMomentum));
}

TEST_F(CoordinatorSettingsTest, WhoProposesTheSameAsTheOneLostIsNotHeldUp) {
  Start();
  Enter("first", kMomentum);
  cluster_->Pass(absl::Seconds(11));
  const absl::StatusOr<messages::Registration> second = Register("second", kMomentum);
  ASSERT_OK(second);
  EXPECT_TRUE(second->needs_initial_weights);
  EXPECT_EQ(cluster_->store().restores, 1);
}

TEST_F(CoordinatorSettingsTest, AProcessThatGoesOnFromItsMemoryHasThem) {
  Start();
  const messages::Registration first = Enter("first", kMomentum);
  cluster_->Restart();
  if (HasFatalFailure()) return;
  cluster_->AttachAgain();
  EXPECT_EQ(coordinator().job().optimizer, first.job.optimizer);
  EXPECT_EQ(coordinator().job().batch_size, 3);
  const absl::StatusOr<messages::Registration> second = Register("second", kSgd);
  ASSERT_OK(second);
  EXPECT_EQ(second->job.optimizer, first.job.optimizer);
  EXPECT_EQ(cluster_->store().restores, 1);
}

TEST_F(CoordinatorSettingsTest, ACheckpointHasItsOwnAndTakesNoOthers) {
  Coordinator::Config config = ClientConfig();
  config.checkpoint_dir = "ckpt";
  config.checkpoint_schedule.every_rounds = 1;
  Start(config);
  const messages::Registration first = Enter("first", kMomentum);
  TestWorker worker{"first", 1, first.life};
  ASSERT_OK(cluster_->Join(worker));
  const GrantAnswer answer = cluster_->Ask(worker);
  ASSERT_TRUE(answer.grant.has_value()) << answer.pending_reason;
  cluster_->Ask(worker, CoordinatorHarness::ReportOf(*answer.grant));
  cluster_->FinishSave();
  const checkpoints::CheckpointRecord record = cluster_->store().published.back();
  EXPECT_EQ(record.job.optimizer, first.job.optimizer);

  CoordinatorHarness next(config);
  next.AttachAll();
  next.coordinator().OnRestoreChosen({{.source = shards::CheckpointSource{record.final_directory},
                                       .state = record.state,
                                       .job = record.job,
                                       .layout = record.layout,
                                       .server_incarnation = 20}},
                                     next.now());
  next.LoadAll();
  const absl::StatusOr<messages::Registration> second =
      next.coordinator().Register(CallOf("second", kSgd), next.now());
  ASSERT_OK(second);
  EXPECT_EQ(second->job.optimizer, first.job.optimizer);
  EXPECT_EQ(next.sent().assignments.back().job.optimizer, first.job.optimizer);
}

}  // namespace
}  // namespace lodestar::coordinator
