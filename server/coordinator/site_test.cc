// SPDX-License-Identifier: Apache-2.0

// Tests of a coordinator whose rounds are ordered by upstream servers.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Coordinator::Config SiteConfig(int min_workers = 2) {
  Coordinator::Config config = TestConfig(min_workers);
  config.num_shards = 1;
  config.upstream = "10.0.0.1:50051";
  return config;
}

rounds::SiteOrder Training(int64_t first_sample, int64_t num_samples, double learning_rate) {
  rounds::SiteOrder order;
  order.first_sample = first_sample;
  order.first_position = 100 + first_sample;
  order.num_samples = num_samples;
  order.learning_rates = {learning_rate};
  return order;
}

class SiteTest : public testing::Test {
 protected:
  void Start(Coordinator::Config config = SiteConfig()) {
    harness_.emplace(std::move(config));
    harness_->Start();
  }
  Coordinator& coordinator() { return harness_->coordinator(); }
  uint64_t Order(const rounds::SiteOrder& order) {
    return coordinator().TakeOrder(order, harness_->now());
  }
  // Reports that the worker has computed all of its grant. Returns the answer to its next request
  // for work.
  GrantAnswer Complete(const TestWorker& worker, const messages::Grant& grant) {
    return harness_->Ask(worker, CoordinatorHarness::ReportOf(grant));
  }

  std::optional<CoordinatorHarness> harness_;
};

TEST_F(SiteTest, WaitsForMembersThenForItsUpstream) {
  Start();
  EXPECT_EQ(coordinator().SiteData(harness_->now()), std::nullopt);
  const TestWorker a = harness_->Add("a");
  EXPECT_EQ(coordinator().SiteData(harness_->now()), std::nullopt);
  EXPECT_THAT(harness_->Ask(a).pending_reason, HasSubstr("1 more worker"));
  const TestWorker b = harness_->Add("b");
  EXPECT_EQ(coordinator().SiteData(harness_->now()), TestDataset());
  coordinator().TellUpstream("not connected: refused", harness_->now());
  harness_->Pass(absl::Seconds(3), {a, b});
  EXPECT_EQ(harness_->Ask(b).pending_reason,
            "waits for upstream 10.0.0.1:50051: not connected: refused");
  const ClusterSnapshot snapshot = coordinator().Snapshot(harness_->now());
  EXPECT_EQ(snapshot.waiting_for,
            "waits for upstream 10.0.0.1:50051: not connected: refused, for 3s");
  EXPECT_EQ(snapshot.state, "waiting_for_upstream");
  EXPECT_EQ(snapshot.upstream, "10.0.0.1:50051");
}

TEST_F(SiteTest, AnOrderIsARoundOfItsSamplesCutOverTheMembers) {
  Start();
  const TestWorker a = harness_->Add("a");
  const TestWorker b = harness_->Add("b");
  harness_->Ask(a);
  harness_->Ask(b);
  const uint64_t number = Order(Training(40, 5, 0.25));
  const messages::Grant of_a = *harness_->Ask(a).grant;
  const messages::Grant of_b = *harness_->Ask(b).grant;
  EXPECT_EQ(of_a.first_sample, 40);
  EXPECT_EQ(of_a.num_samples, 3);
  EXPECT_EQ(of_a.first_position, 140);
  EXPECT_EQ(of_b.first_sample, 43);
  EXPECT_EQ(of_b.num_samples, 2);
  EXPECT_EQ(of_b.first_position, 143);
  EXPECT_THAT(of_a.learning_rates, ElementsAre(0.25));
  EXPECT_EQ(harness_->sent().plans.back().learning_rate, 0.25);
  EXPECT_EQ(coordinator().OrderOutcome(number), std::nullopt);
  EXPECT_FALSE(coordinator().is_between_rounds());
  Complete(a, of_a);
  EXPECT_THAT(Complete(b, of_b).pending_reason, HasSubstr("waits for upstream"));
  const auto outcome = coordinator().OrderOutcome(number);
  ASSERT_TRUE(outcome.has_value());
  ASSERT_OK(*outcome);
  EXPECT_EQ((*outcome)->num_samples, 5);
  EXPECT_EQ((*outcome)->loss_sum, 10.0);
  EXPECT_TRUE(coordinator().is_between_rounds());
}

// The site does more rounds than the job's settings say, because the upstream servers decide on the
// number.
TEST_F(SiteTest, RoundsGoOnAsLongAsThereAreOrders) {
  Start(SiteConfig(1));
  const TestWorker a = harness_->Add("a");
  harness_->Ask(a);
  for (int64_t i = 0; i < 7; ++i) {
    rounds::SiteOrder order = Training(6 * i, 6, 0.1);
    order.has_new_weights = i % 3 == 0;
    const uint64_t number = Order(order);
    const messages::Grant grant = *harness_->Ask(a).grant;
    EXPECT_EQ(grant.first_sample, 6 * i);
    // If the order has new weights, min_round is 0, so that weights that were pulled ahead of the
    // grant are not used.
    EXPECT_EQ(grant.min_round, Round(order.has_new_weights ? 0 : i));
    Complete(a, grant);
    EXPECT_TRUE(coordinator().OrderOutcome(number).has_value());
  }
  EXPECT_EQ(coordinator().phase(), CoordinatorPhase::kRunning);
}

TEST_F(SiteTest, AnOrderMayHaveSeveralLocalSteps) {
  Coordinator::Config config = SiteConfig();
  config.job.mode = job::Mode::kLocalSgd;
  config.job.local_steps = 3;
  Start(config);
  const TestWorker a = harness_->Add("a");
  const TestWorker b = harness_->Add("b");
  harness_->Ask(a);
  harness_->Ask(b);
  rounds::SiteOrder order = Training(30, 15, 0.1);
  order.learning_rates = {0.1, 0.2, 0.3};
  Order(order);
  const messages::Grant of_a = *harness_->Ask(a).grant;
  const messages::Grant of_b = *harness_->Ask(b).grant;
  EXPECT_EQ(of_a.local_steps, 3);
  EXPECT_EQ(of_a.num_samples, 9);
  EXPECT_EQ(of_b.first_sample, 39);
  EXPECT_EQ(of_b.num_samples, 6);
  EXPECT_THAT(of_b.learning_rates, ElementsAre(0.1, 0.2, 0.3));
}

TEST_F(SiteTest, EvaluatesPartsOfTheEvaluationSetInARoundThatNobodyContributesTo) {
  Start();
  const TestWorker a = harness_->Add("a");
  const TestWorker b = harness_->Add("b");
  harness_->Ask(a);
  harness_->Ask(b);
  rounds::SiteOrder order;
  order.kind = rounds::SiteOrder::Kind::kEvaluate;
  order.first_heldout_sample = 2;
  order.num_heldout_samples = 5;
  order.evaluation_set_size = 7;
  const uint64_t number = Order(order);
  EXPECT_THAT(harness_->sent().plans.back().roster, IsEmpty());
  const messages::Grant of_a = *harness_->Ask(a).grant;
  const messages::Grant of_b = *harness_->Ask(b).grant;
  EXPECT_EQ(of_a.kind, messages::Grant::Kind::kEvaluate);
  EXPECT_EQ(of_a.first_heldout_sample, 2);
  EXPECT_EQ(of_a.num_heldout_samples, 3);
  EXPECT_EQ(of_b.first_heldout_sample, 5);
  EXPECT_EQ(of_b.num_heldout_samples, 2);
  EXPECT_EQ(of_b.evaluation_set_size, 7);
  Complete(a, of_a);
  Complete(b, of_b);
  const auto outcome = coordinator().OrderOutcome(number);
  ASSERT_TRUE(outcome.has_value());
  ASSERT_OK(*outcome);
  EXPECT_EQ((*outcome)->heldout.predictions, 5);
  // The next round is for training, and has a new number.
  Order(Training(0, 6, 0.1));
  EXPECT_EQ(harness_->Ask(a).grant->round, of_a.round + 1);
}

TEST_F(SiteTest, OfALostMemberTheSamplesAreNotInTheOutcome) {
  Start();
  const TestWorker a = harness_->Add("a");
  const TestWorker b = harness_->Add("b");
  harness_->Ask(a);
  harness_->Ask(b);
  const uint64_t number = Order(Training(0, 6, 0.1));
  const messages::Grant of_a = *harness_->Ask(a).grant;
  Complete(a, of_a);
  ASSERT_OK(coordinator().Leave(b.life, "killed", std::nullopt, harness_->now()));
  const auto outcome = coordinator().OrderOutcome(number);
  ASSERT_TRUE(outcome.has_value());
  ASSERT_OK(*outcome);
  EXPECT_EQ((*outcome)->num_samples, 3);
}

TEST_F(SiteTest, AnOrderThatAllAreLostFromIsGivenToThoseWhoComeThen) {
  Start(SiteConfig(1));
  const TestWorker a = harness_->Add("a");
  harness_->Ask(a);
  const uint64_t number = Order(Training(18, 6, 0.1));
  ASSERT_OK(coordinator().Leave(a.life, "killed", std::nullopt, harness_->now()));
  EXPECT_EQ(coordinator().OrderOutcome(number), std::nullopt);
  const TestWorker b = harness_->Add("b");
  const messages::Grant of_b = *harness_->Ask(b).grant;
  EXPECT_EQ(of_b.first_sample, 18);
  EXPECT_EQ(of_b.num_samples, 6);
  Complete(b, of_b);
  EXPECT_TRUE(coordinator().OrderOutcome(number).has_value());
}

TEST_F(SiteTest, AWithdrawnOrderIsNotOpenedAndOneThatIsOpenGoesOnForNobody) {
  Start(SiteConfig(1));
  const TestWorker a = harness_->Add("a");
  const uint64_t first = Order(Training(0, 6, 0.1));
  EXPECT_TRUE(coordinator().WithdrawUnlessBegun(first));
  EXPECT_THAT(harness_->Ask(a).pending_reason, HasSubstr("waits for upstream"));
  const uint64_t second = Order(Training(6, 6, 0.1));
  const messages::Grant grant = *harness_->Ask(a).grant;
  EXPECT_FALSE(coordinator().WithdrawUnlessBegun(second));
  const uint64_t third = Order(Training(12, 6, 0.1));
  EXPECT_EQ(coordinator().OrderOutcome(third), std::nullopt);
  const messages::Grant next = *Complete(a, grant).grant;
  EXPECT_EQ(next.first_sample, 12);
  ASSERT_TRUE(coordinator().OrderOutcome(second).has_value());
  EXPECT_THAT(coordinator().OrderOutcome(second)->status(), StatusIs(absl::StatusCode::kCancelled));
  Complete(a, next);
  EXPECT_TRUE(coordinator().OrderOutcome(third).has_value());
}

TEST_F(SiteTest, AStoppedSiteAnswersNoOrderAndItsWorkersAreToldThatItIsOver) {
  Start(SiteConfig(1));
  const TestWorker a = harness_->Add("a");
  harness_->Ask(a);
  const uint64_t number = Order(Training(0, 6, 0.1));
  coordinator().OnUpstreamEnd(absl::OkStatus(), harness_->now());
  EXPECT_EQ(coordinator().OrderOutcome(number), std::nullopt) << "the round at hand";
  const GrantAnswer done = Complete(a, *harness_->Ask(a).grant);
  EXPECT_EQ(done.grant->kind, messages::Grant::Kind::kDone);
  EXPECT_THAT(done.grant->reason, HasSubstr("the job upstream is over"));
  const uint64_t late = Order(Training(6, 6, 0.1));
  const auto outcome = coordinator().OrderOutcome(late);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(outcome->status(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(SiteTest, SaysThatItLeavesItsUpstreamWhenAllElseIsOver) {
  Start(SiteConfig(1));
  coordinator().RequestStop("an operator asked for it", harness_->now());
  harness_->Pass(absl::Seconds(30), {});
  ASSERT_TRUE(coordinator().outcome().has_value());
  coordinator().TellUpstream("hands in what was computed", harness_->now());
  EXPECT_EQ(coordinator().Snapshot(harness_->now()).waiting_for,
            "leaves upstream 10.0.0.1:50051: hands in what was computed");
  coordinator().TellUpstream("", harness_->now());
  EXPECT_EQ(coordinator().Snapshot(harness_->now()).waiting_for, "");
}

// The site refuses a rollback, because its present order does not belong to the weights of the
// checkpoint.
TEST_F(SiteTest, GoesBackNowhereButUpstream) {
  Coordinator::Config config = SiteConfig(1);
  config.checkpoint_dir = "ckpt";
  config.checkpoint_schedule.every_rounds = 1;
  Start(config);
  const TestWorker a = harness_->Add("a");
  Order(Training(0, 6, 0.1));
  Complete(a, *harness_->Ask(a).grant);
  harness_->FinishSave();
  const uint64_t number = Order(Training(6, 6, 0.1));
  const messages::Grant grant = *harness_->Ask(a).grant;
  EXPECT_THAT(coordinator().RollBack(Round(0), "", harness_->now()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("10.0.0.1:50051"), HasSubstr("psctl rollback"))));
  Complete(a, grant);
  ASSERT_TRUE(coordinator().OrderOutcome(number).has_value());
  EXPECT_OK(*coordinator().OrderOutcome(number));
}

TEST_F(SiteTest, FailsAsItsUplinkDoes) {
  Start(SiteConfig(1));
  coordinator().OnUpstreamEnd(absl::FailedPreconditionError("other data"), harness_->now());
  EXPECT_EQ(coordinator().phase(), CoordinatorPhase::kFailed);
  EXPECT_THAT(coordinator().Snapshot(harness_->now()).waiting_for, HasSubstr("other data"));
}

// If the site is stopping, an error of its uplink does not make it fail. Its workers may still
// finish the present order.
TEST_F(SiteTest, AStoppedSiteDoesNotFailOfWhatItsUplinkHasLost) {
  Start(SiteConfig(1));
  const TestWorker a = harness_->Add("a");
  harness_->Ask(a);
  Order(Training(0, 6, 0.1));
  const messages::Grant grant = *harness_->Ask(a).grant;
  coordinator().RequestStop("an operator asked for it", harness_->now());
  coordinator().OnUpstreamEnd(absl::DeadlineExceededError("round 5 is not handed in"),
                              harness_->now());
  const GrantAnswer done = Complete(a, grant);
  EXPECT_EQ(done.grant->kind, messages::Grant::Kind::kDone);
  EXPECT_FALSE(done.grant->has_failed);
  EXPECT_THAT(done.grant->reason, HasSubstr("an operator asked for it"));
  EXPECT_EQ(coordinator().phase(), CoordinatorPhase::kDone);
}

TEST_F(SiteTest, RefusesWorkersWithDataOfTheirOwn) {
  Start();
  TestWorker a{"a", 7, {}};
  ASSERT_OK(harness_->Register(a));
  messages::DatasetInfo own = TestDataset();
  own.own_partition = true;
  EXPECT_THAT(harness_->Join(a, own), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace lodestar::coordinator
