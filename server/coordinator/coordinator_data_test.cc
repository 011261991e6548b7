// SPDX-License-Identifier: Apache-2.0

// Tests of workers with their own data: what is compared, handed out and evaluated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/testing/coordinator_fixture.h"
#include "server/coordinator/verdict_words.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

messages::DatasetInfo Own(const std::string& fingerprint, int64_t train, int64_t heldout) {
  return {.fingerprint = fingerprint,
          .num_train_samples = train,
          .num_heldout_samples = heldout,
          .own_partition = true};
}

// Returns a report with the loss `heldout_loss` for each held-out sample.
messages::RoundReport ReportOf(const messages::Grant& grant, double heldout_loss) {
  messages::RoundReport report = CoordinatorHarness::ReportOf(grant);
  report.heldout_loss_sum = heldout_loss * static_cast<double>(grant.num_heldout_samples);
  return report;
}

Coordinator::Config AsyncConfig(int64_t eval_every) {
  Coordinator::Config config = TestConfig();
  config.job.mode = job::Mode::kAsync;
  config.job.eval_every = eval_every;
  config.job.schedule.total_rounds = 100;
  return config;
}

TEST(CoordinatorDataTest, SharedWorkersMustAgreeAlsoIfAnOwnOneJoinedFirst) {
  CoordinatorHarness cluster;
  cluster.Start();
  cluster.Add("own", Own("o", 10, 1));
  cluster.Add("a");
  messages::DatasetInfo other = TestDataset();
  other.fingerprint = "beef";
  TestWorker b{"b", 2, {}};
  ASSERT_TRUE(cluster.Register(b).ok());
  const absl::Status refused = cluster.Join(b, other);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("which worker 'a' has"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("fingerprint beef"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("fingerprint f00d"));
}

TEST(DataRefusalTest, NamesOnlyAnotherWorkerAsHolderOfTheJobsData) {
  const messages::DatasetInfo data = {.fingerprint = "beef", .num_train_samples = 77};
  rounds::DataRefusal refusal = {.kind = rounds::DataRefusal::Kind::kOtherData,
                                 .job = {TestDataset(), 5, "ann"}};
  const auto refused = [&](absl::string_view worker) {
    return DataRefusalStatus(worker, data, refusal);
  };
  for (const absl::string_view worker : {"ann", "eve"}) {
    EXPECT_THAT(refused(worker), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          AllOf(HasSubstr("beef"), HasSubstr("77"),
                                                HasSubstr(TestDataset().fingerprint),
                                                HasSubstr("--data_partition=own"))));
  }
  EXPECT_THAT(refused("eve").message(), HasSubstr("'ann'"));
  EXPECT_THAT(refused("ann").message(), Not(HasSubstr("'ann'")));
  refusal.job.claimant = "";  // from a release that did not keep the name
  EXPECT_THAT(refused("eve").message(), AllOf(HasSubstr("checkpoint"), Not(HasSubstr("worker '"))));
}

TEST(DataRefusalTest, HasCodeAndNumbersOfEachKind) {
  using Kind = rounds::DataRefusal::Kind;
  const messages::DatasetInfo data = {.fingerprint = "beef", .num_train_samples = 77};
  EXPECT_OK(DataRefusalStatus("eve", data, std::nullopt));
  EXPECT_THAT(
      DataRefusalStatus("eve", data, rounds::DataRefusal{Kind::kTooLarge, 76}),
      StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("76"), HasSubstr("77"))));
  EXPECT_THAT(DataRefusalStatus("eve", data, rounds::DataRefusal{Kind::kNotSound}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--data")));
  EXPECT_THAT(DataRefusalStatus("eve", data, rounds::DataRefusal{Kind::kTooManySets, 9}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("9 ")));
}

TEST(CoordinatorDataTest, AnOwnWorkerDoesNotSpareTheJobItsSharedData) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  cluster.Ask(a);
  cluster.Pass(absl::Seconds(11));
  cluster.Add("own", Own("o", 10, 1));
  messages::DatasetInfo other = TestDataset();
  other.fingerprint = "beef";
  TestWorker b{"b", 2, {}};
  ASSERT_TRUE(cluster.Register(b).ok());
  EXPECT_FALSE(cluster.Join(b, other).ok()) << "the job has begun with other data";
}

TEST(CoordinatorDataTest, HeldOutLossIsThatOfTheUnionInWhateverOrderWorkersJoined) {
  for (const bool small_first : {true, false}) {
    Coordinator::Config config = TestConfig();
    config.job.min_workers = 2;
    config.job.schedule.total_rounds = 1;
    CoordinatorHarness cluster(config);
    cluster.Start();
    const auto add_small = [&] { return cluster.Add("small", Own("s", 10, 2)); };
    const auto add_large = [&] { return cluster.Add("large", Own("l", 90, 8)); };
    std::optional<TestWorker> small, large;
    if (small_first) small = add_small();
    large = add_large();
    if (!small_first) small = add_small();
    for (const TestWorker& worker : {*small, *large}) cluster.Ask(worker);
    for (const TestWorker& worker : {*small, *large}) {
      cluster.Ask(worker, ReportOf(*cluster.Ask(worker).grant, 0.0));
    }
    cluster.Ask(*small, ReportOf(*cluster.Ask(*small).grant, 0.5));
    cluster.Ask(*large, ReportOf(*cluster.Ask(*large).grant, 0.25));
    const rounds::RoundSummary& evaluated = cluster.observer().rounds.back();
    EXPECT_FALSE(evaluated.trained);
    EXPECT_DOUBLE_EQ(*evaluated.heldout_loss, (2 * 0.5 + 8 * 0.25) / 10) << small_first;
    EXPECT_TRUE(evaluated.heldout_complete);
    EXPECT_DOUBLE_EQ(cluster.coordinator().Snapshot(cluster.now()).epoch, 6.0 / 100);
  }
}

TEST(CoordinatorDataTest, FinalEvaluationWaitsForEveryDataSetThatIsThere) {
  Coordinator::Config config = TestConfig();
  config.job.schedule.total_rounds = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a", Own("a", 10, 2));
  const messages::Grant trained = *cluster.Ask(a).grant;
  const TestWorker b = cluster.Add("b", Own("b", 10, 2));
  EXPECT_EQ(cluster.Ask(a, ReportOf(trained, 0.0)).pending_reason,
            "the final evaluation waits for b");
  const messages::Grant part = *cluster.Ask(b).grant;
  EXPECT_EQ(part.kind, messages::Grant::Kind::kEvaluate);
  EXPECT_EQ(part.num_heldout_samples, 2);
  EXPECT_EQ(cluster.Ask(a).grant->num_heldout_samples, 2);
}

TEST(CoordinatorDataTest, FinalEvaluationGoesOnWithoutDataThatWasLostWithItsWorker) {
  Coordinator::Config config = TestConfig();
  config.job.schedule.total_rounds = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a", Own("a", 10, 2));
  const messages::Grant trained = *cluster.Ask(a).grant;
  cluster.Add("b", Own("b", 10, 2));
  cluster.Ask(a, ReportOf(trained, 0.0));
  cluster.Pass(absl::Seconds(6), {a});
  cluster.Pass(absl::Seconds(6), {a});
  EXPECT_EQ(cluster.Ask(a).grant->kind, messages::Grant::Kind::kEvaluate);
}

// Each worker gets its part of the evaluation with its next grant. No held-out loss is reported
// before all parts are in.
TEST(CoordinatorDataTest, AsynchronousEvaluationIsOverAllSets) {
  CoordinatorHarness cluster(AsyncConfig(/*eval_every=*/2));
  cluster.Start();
  const TestWorker a = cluster.Add("a", Own("a", 10, 2));
  const TestWorker b = cluster.Add("b", Own("b", 10, 6));
  messages::Grant of_a = *cluster.Ask(a).grant;        // round 0
  const messages::Grant of_b = *cluster.Ask(b).grant;  // round 1
  std::vector<int64_t> parts;
  for (int i = 0; i < 4; ++i) {  // rounds 2 to 5
    of_a = *cluster.Ask(a, ReportOf(of_a, 1.0)).grant;
    parts.push_back(of_a.num_heldout_samples);
  }
  EXPECT_EQ(parts, (std::vector<int64_t>{2, 0, 0, 0})) << "b has not had its turn";
  for (const rounds::RoundSummary& round : cluster.observer().rounds)
    EXPECT_FALSE(round.heldout_loss);
  const messages::Grant part_of_b = *cluster.Ask(b, ReportOf(of_b, 0.0)).grant;
  EXPECT_EQ(part_of_b.num_heldout_samples, 6);
  cluster.Ask(b, ReportOf(part_of_b, 2.0));
  EXPECT_DOUBLE_EQ(*cluster.observer().rounds.back().heldout_loss, (2 * 1.0 + 6 * 2.0) / 8);
  of_a = *cluster.Ask(a, ReportOf(of_a, 1.0)).grant;
  EXPECT_EQ(of_a.num_heldout_samples, 2) << "the next one";
}

TEST(CoordinatorDataTest, AsynchronousEvaluationDoesNotWaitForTheDead) {
  CoordinatorHarness cluster(AsyncConfig(/*eval_every=*/2));
  cluster.Start();
  const TestWorker a = cluster.Add("a", Own("a", 10, 2));
  const TestWorker b = cluster.Add("b", Own("b", 10, 6));
  messages::Grant of_a = *cluster.Ask(a).grant;
  cluster.Ask(b);
  of_a = *cluster.Ask(a, ReportOf(of_a, 1.0)).grant;
  ASSERT_EQ(of_a.num_heldout_samples, 2);
  cluster.Pass(absl::Seconds(6), {a});
  cluster.Pass(absl::Seconds(6), {a});
  cluster.Ask(a, ReportOf(of_a, 1.0));
  EXPECT_EQ(cluster.observer().rounds.back().heldout_loss, 1.0);
  EXPECT_FALSE(cluster.observer().rounds.back().heldout_complete);
}

TEST(CoordinatorDataTest, CursorsGoOnAfterARestart) {
  Coordinator::Config config = TestConfig();
  config.job.min_workers = 2;
  config.checkpoint_dir = "ckpt";
  config.checkpoint_schedule.every_rounds = 2;
  CoordinatorHarness before(config);
  before.Start();
  const std::vector<TestWorker> workers = {before.Add("a", Own("a", 10, 0)),
                                           before.Add("b", Own("b", 10, 0))};
  before.RunToEnd(workers);
  const checkpoints::CheckpointRecord record = before.store().published.front();
  ASSERT_EQ(record.state.ledger.next_round, 2);

  CoordinatorHarness after(config);
  after.Start({.source = shards::CheckpointSource{"ckpt/round-2"},
               .state = record.state,
               .server_incarnation = 2000});
  const TestWorker c = after.Add("c", Own("b", 10, 0));
  const TestWorker a = after.Add("a", Own("a", 10, 0));
  after.Ask(c);
  EXPECT_EQ(after.Ask(a).grant->first_sample, 6);
  EXPECT_EQ(after.Ask(c).grant->first_sample, 6);
  EXPECT_EQ(after.Ask(a).grant->first_position + after.Ask(c).grant->first_position, 12 + 15);
}

TEST(CoordinatorDataTest, StatusTellsWhoseDataIsWhose) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker own = cluster.Add("own", Own("o", 4, 1));
  cluster.Add("a");
  cluster.Ask(own);
  const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  ASSERT_EQ(snapshot.workers.size(), 2);
  EXPECT_TRUE(snapshot.workers[0].data->is_own);
  EXPECT_EQ(snapshot.workers[0].data->fingerprint, "o");
  EXPECT_EQ(snapshot.workers[0].data->num_train_samples, 4);
  EXPECT_EQ(snapshot.workers[0].data->epoch, 1.5);
  EXPECT_FALSE(snapshot.workers[1].data->is_own);
  EXPECT_EQ(snapshot.workers[1].data->epoch, 0.0);
  EXPECT_EQ(snapshot.epoch, 6.0 / (4 + 12));
}

}  // namespace
}  // namespace lodestar::coordinator
