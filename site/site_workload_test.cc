// SPDX-License-Identifier: Apache-2.0

#include "site/site_workload.h"

#include <memory>
#include <utility>
#include <vector>

#include "common/params/bucket_plan.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::site {
namespace {

using ::testing::DoubleEq;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A site that carries out every order, and adds one to all weights for each local step.
class FakeSite final : public site::Site {
 public:
  absl::StatusOr<messages::DatasetInfo> AwaitData(const Interrupted&) override {
    ++num_awaits;
    return messages::DatasetInfo{
        .fingerprint = "f00d", .num_train_samples = 100, .num_heldout_samples = 9};
  }
  int StepsOfOrder() override { return steps_of_order; }
  absl::Status PutWeights(absl::Span<const float> put) override {
    weights.assign(put.begin(), put.end());
    ++num_puts;
    return absl::OkStatus();
  }
  absl::Status GetWeights(absl::Span<float> got) override {
    std::copy(weights.begin(), weights.end(), got.begin());
    return absl::OkStatus();
  }
  absl::StatusOr<rounds::SiteOutcome> CarryOut(const rounds::SiteOrder& order,
                                               const Interrupted&) override {
    if (!refusal.ok()) return refusal;
    orders.push_back(order);
    for (float& weight : weights) weight += static_cast<float>(order.learning_rates.size());
    rounds::SiteOutcome outcome;
    outcome.num_samples = order.num_samples - lost_samples;
    outcome.num_predictions = outcome.num_samples;
    outcome.loss_sum = 2.0 * static_cast<double>(outcome.num_samples);
    outcome.heldout.predictions = order.num_heldout_samples;
    outcome.heldout.loss_sum = 3.0 * static_cast<double>(order.num_heldout_samples);
    outcome.heldout.correct = 1;
    return outcome;
  }
  void TellUpstream(absl::string_view) override {}
  void OnUpstreamEnd(const absl::Status&) override {}

  int steps_of_order = 1;
  int64_t lost_samples = 0;
  absl::Status refusal;
  std::vector<float> weights;
  int num_awaits = 0;
  int num_puts = 0;
  std::vector<rounds::SiteOrder> orders;
};

class SiteWorkloadTest : public testing::Test {
 protected:
  SiteWorkloadTest() {
    registration_.job.model = *params::ModelPreset("mlp");
    registration_.job.mode = job::Mode::kLocalSgd;
    registration_.job.local_steps = 4;
    registration_.job.batch_size = 6;
    auto map = std::make_shared<messages::ClusterMap>();
    map->layout = *params::BuildLayout(registration_.job.model);
    registration_.map = map;
    workload_ = std::make_unique<SiteWorkload>(
        registration_.job, SiteWorkload::Deps{.site = &site_,
                                              .is_stopping = [] { return false; },
                                              .request_stop = [this] { ++num_stops_; }});
  }

  absl::Status Prepare() {
    return workload_->Prepare(registration_, /*devices=*/{}, data::NeverStopped);
  }

  // Begins a grant with 4 steps of 6 samples.
  void Begin(float weight = 0.0f) {
    messages::Grant grant;
    grant.first_sample = 48;
    grant.first_position = 96;
    grant.num_samples = 24;
    grant.local_steps = 4;
    grant.learning_rates = {0.1, 0.2, 0.3, 0.4};
    grant.first_heldout_sample = 2;
    grant.num_heldout_samples = 5;
    grant.evaluation_set_size = 8;
    FillParameters(weight);
    workload_->OnGrant(grant);
  }
  void FillParameters(float weight) {
    const kernels::Buf parameters = workload_->model()->parameters();
    auto* const data = static_cast<float*>(parameters.data);
    std::fill(data, data + parameters.num_elements, weight);
  }
  absl::StatusOr<model::BatchResult> Step(int step) {
    workload_->OnStep(
        {.round = Round(0),
         .step = step,
         .num_steps = 4,
         .samples = {.first = 48 + 6 * step, .count = 6, .first_position = 96 + 6 * step},
         .learning_rate = 0.1 * (step + 1)});
    return workload_->model()->TrainStep(data::HostBatch(), nullptr, nullptr);
  }
  std::vector<float> Parameters() {
    const kernels::Buf parameters = workload_->model()->parameters();
    const auto* const data = static_cast<const float*>(parameters.data);
    return {data, data + parameters.num_elements};
  }

  FakeSite site_;
  messages::Registration registration_;
  int num_stops_ = 0;
  std::unique_ptr<SiteWorkload> workload_;
};

TEST_F(SiteWorkloadTest, EachStepIsAnOrderAndTheWeightsAreThoseAfterTheLast) {
  ASSERT_OK(Prepare());
  EXPECT_EQ(workload_->dataset()->fingerprint(), "f00d");
  Begin(10.0f);
  for (int step = 0; step < 3; ++step) {
    ASSERT_OK_AND_ASSIGN(const model::BatchResult result, Step(step));
    EXPECT_EQ(result.loss_sum, 12.0);
    EXPECT_EQ(result.num_lost_samples, 0);
  }
  ASSERT_OK(workload_->OnStepsMade());
  EXPECT_THAT(Parameters(), Each(13.0f));
  EXPECT_EQ(site_.num_puts, 1);
  ASSERT_THAT(site_.orders, SizeIs(3));
  EXPECT_EQ(site_.orders[2].first_sample, 60);
  EXPECT_EQ(site_.orders[2].first_position, 108);
  EXPECT_EQ(site_.orders[2].num_samples, 6);
  EXPECT_THAT(site_.orders[2].learning_rates, ElementsAre(DoubleEq(0.3)));
  // After a lost connection the same grant comes again. Its steps start from the weights that were
  // pulled again.
  Begin(20.0f);
  ASSERT_OK(Step(0));
  ASSERT_OK(workload_->OnStepsMade());
  EXPECT_THAT(Parameters(), Each(21.0f));
}

TEST_F(SiteWorkloadTest, SeveralStepsAreAnOrderOfASiteWithLocalSteps) {
  site_.steps_of_order = 2;
  ASSERT_OK(Prepare());
  Begin();
  site_.lost_samples = 1;
  int64_t lost = 0;
  for (int step = 0; step < 4; ++step) {
    ASSERT_OK_AND_ASSIGN(const model::BatchResult result, Step(step));
    lost += result.num_lost_samples;
  }
  EXPECT_EQ(lost, 2);
  ASSERT_THAT(site_.orders, SizeIs(2));
  EXPECT_EQ(site_.orders[1].first_sample, 60);
  EXPECT_EQ(site_.orders[1].num_samples, 12);
  EXPECT_THAT(site_.orders[1].learning_rates, ElementsAre(DoubleEq(0.3), DoubleEq(0.4)));
}

// A window without a step must not be contributed as if all its steps had been made.
TEST_F(SiteWorkloadTest, AWindowThatEndsBeforeItsFirstOrderIsNoContribution) {
  site_.steps_of_order = 2;
  ASSERT_OK(Prepare());
  Begin();
  ASSERT_OK(Step(0));
  EXPECT_THAT(workload_->OnStepsMade(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(SiteWorkloadTest, EvaluatesAllOfAGrantAtOnce) {
  ASSERT_OK(Prepare());
  Begin();
  ASSERT_OK_AND_ASSIGN(const model::BatchResult first,
                       workload_->model()->Evaluate(data::HostBatch(), nullptr));
  EXPECT_EQ(first.num_predictions, 5);
  EXPECT_EQ(first.loss_sum, 15.0);
  EXPECT_EQ(first.num_correct, 1);
  ASSERT_OK_AND_ASSIGN(const model::BatchResult second,
                       workload_->model()->Evaluate(data::HostBatch(), nullptr));
  EXPECT_EQ(second.num_predictions, 0);
  ASSERT_THAT(site_.orders, SizeIs(1));
  EXPECT_EQ(site_.orders[0].first_heldout_sample, 2);
  EXPECT_EQ(site_.orders[0].evaluation_set_size, 8);
  EXPECT_EQ(site_.num_puts, 1);
}

TEST_F(SiteWorkloadTest, ASiteThatTakesNoOrdersStopsTheWorker) {
  ASSERT_OK(Prepare());
  Begin();
  site_.refusal = absl::CancelledError("stopping");
  EXPECT_THAT(Step(0), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(num_stops_, 1);
}

TEST_F(SiteWorkloadTest, EachLifeUpstreamBeginsWithWorkers) {
  ASSERT_OK(Prepare());
  const int before = site_.num_awaits;
  workload_->OnRegistered(registration_);
  EXPECT_EQ(site_.num_awaits, before + 1);
}

TEST_F(SiteWorkloadTest, RefusesAJobThatIsNotTheOneItsSiteHasBegunWith) {
  ASSERT_OK(Prepare());
  EXPECT_TRUE(workload_->Serves(registration_));
  registration_.job.clip_norm = 3.0;
  EXPECT_FALSE(workload_->Serves(registration_));
  EXPECT_THAT(Prepare(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(SiteWorkloadTest, WeightsThatAreMergedBetweenTwoStepsAreThoseOfTheNext) {
  registration_.job.overlap_steps = 2;
  ASSERT_OK(Prepare());
  Begin(10.0f);
  workload_->model()->RefreshNarrowParameters();
  ASSERT_OK(Step(0));
  ASSERT_OK(Step(1));
  ASSERT_OK(workload_->OnStepsMade());
  EXPECT_THAT(Parameters(), Each(12.0f));
  FillParameters(20.0f);
  workload_->model()->RefreshNarrowParameters();
  ASSERT_OK(Step(2));
  // The next grant arrives while the steps are made.
  workload_->OnGrant(messages::Grant());
  ASSERT_OK(Step(3));
  ASSERT_OK(workload_->OnStepsMade());
  EXPECT_THAT(Parameters(), Each(22.0f));
  EXPECT_EQ(site_.num_puts, 2);
  EXPECT_EQ(site_.orders[3].first_sample, 66);
}

TEST_F(SiteWorkloadTest, AWindowWithoutStepsLeavesTheWeightsThatWereMerged) {
  registration_.job.overlap_steps = 2;
  ASSERT_OK(Prepare());
  Begin(10.0f);
  workload_->model()->RefreshNarrowParameters();
  for (int step = 0; step < 4; ++step) ASSERT_OK(Step(step));
  ASSERT_OK(workload_->OnStepsMade());
  FillParameters(20.0f);
  workload_->model()->RefreshNarrowParameters();
  ASSERT_OK(workload_->OnStepsMade());
  EXPECT_THAT(Parameters(), Each(20.0f));
}

TEST_F(SiteWorkloadTest, RefusesLocalStepsThatItsOrdersDoNotDivide) {
  site_.steps_of_order = 2;
  ASSERT_OK(Prepare());
  registration_.job.local_steps = 6;
  EXPECT_TRUE(workload_->Serves(registration_));
  registration_.job.local_steps = 5;
  EXPECT_FALSE(workload_->Serves(registration_));
  EXPECT_THAT(Prepare(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--local_steps=5")));
}

}  // namespace
}  // namespace lodestar::site
