// SPDX-License-Identifier: Apache-2.0

#include "worker/capi/step_handoff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace lodestar::capi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class RecordingSink final : public model::GradientSink {
 public:
  absl::Status BlockReady(int block) override {
    blocks_.push_back(block);
    return failure_;
  }

  std::vector<int> blocks_;
  absl::Status failure_;
};

HandedStep TrainingOn(std::vector<data::SampleRef> samples) {
  HandedStep step;
  step.is_training = true;
  step.samples = std::move(samples);
  return step;
}

class StepHandoffTest : public ::testing::Test {
 protected:
  ~StepHandoffTest() override {
    if (worker_.joinable()) worker_.join();
  }
  void ComputeOnAnotherThread(HandedStep step) {
    worker_ = std::thread([this, step] {
      result_ = handoff_.Compute(step, &sink_, [this] {
        return more_.ok() ? absl::StatusOr<ExtraSamples>(ExtraSamples{.samples = {{1, 8}, {1, 9}}})
                          : more_;
      });
    });
  }
  // Waits until Compute() has returned, and returns its result.
  const absl::StatusOr<model::BatchResult>& Result() {
    worker_.join();
    return result_;
  }

  StepHandoff handoff_;
  RecordingSink sink_;
  absl::Status more_;  // what Extend() gets instead of samples, unless it is OK
  absl::StatusOr<model::BatchResult> result_;
  std::thread worker_;
};

TEST_F(StepHandoffTest, AStepGoesToTheProgramAndItsResultBack) {
  ComputeOnAnotherThread(TrainingOn({{.epoch = 2, .index = 7}}));
  ASSERT_OK_AND_ASSIGN(const std::optional<HandedStep> step, handoff_.Next());
  ASSERT_TRUE(step.has_value());
  EXPECT_TRUE(step->is_training);
  EXPECT_THAT(step->samples, ElementsAre(data::SampleRef{.epoch = 2, .index = 7}));
  EXPECT_OK(handoff_.BlockReady(1));
  EXPECT_OK(handoff_.BlockReady(0));
  EXPECT_OK(handoff_.Finish(model::BatchResult{.loss_sum = 3.0}));
  ASSERT_OK(Result());
  EXPECT_EQ(result_->loss_sum, 3.0);
  EXPECT_THAT(sink_.blocks_, ElementsAre(1, 0));
}

TEST_F(StepHandoffTest, WhatIsNotAtHandIsRefused) {
  EXPECT_THAT(handoff_.BlockReady(0), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(handoff_.Finish(model::BatchResult{}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  EXPECT_THAT(handoff_.Next(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("the last step is not finished")));
  EXPECT_OK(handoff_.Finish(model::BatchResult{}));
  EXPECT_THAT(handoff_.Finish(model::BatchResult{}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(Result());
}

TEST_F(StepHandoffTest, ExtendedStepHasOtherSamplesAndCountsThem) {
  ComputeOnAnotherThread(TrainingOn({{.epoch = 0, .index = 7}}));
  EXPECT_OK(handoff_.Next());
  for (int64_t extension = 1; extension <= 2; ++extension) {
    ASSERT_OK_AND_ASSIGN(const HandedStep step, handoff_.Extend());
    EXPECT_THAT(step.samples, ElementsAre(data::SampleRef{.epoch = 1, .index = 8},
                                          data::SampleRef{.epoch = 1, .index = 9}));
    EXPECT_EQ(handoff_.num_extra_samples(), 2 * extension);
  }
  EXPECT_OK(handoff_.BlockReady(0));
  EXPECT_THAT(handoff_.Extend(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(handoff_.Finish(model::BatchResult{}));
  EXPECT_OK(Result());
  EXPECT_THAT(sink_.blocks_, ElementsAre(0));
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  EXPECT_EQ(handoff_.num_extra_samples(), 0);
  EXPECT_OK(handoff_.Finish(model::BatchResult{}));
  EXPECT_OK(Result());
}

TEST_F(StepHandoffTest, StepThatCannotBeExtendedIsOver) {
  EXPECT_THAT(handoff_.Extend(), StatusIs(absl::StatusCode::kFailedPrecondition));
  more_ = absl::AbortedError("the life is over");
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  EXPECT_THAT(handoff_.Extend(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(Result(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(handoff_.Finish(model::BatchResult{}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(StepHandoffTest, BlocksAreOfTrainingOnly) {
  HandedStep evaluation;
  evaluation.samples = {{}};
  ComputeOnAnotherThread(evaluation);
  EXPECT_OK(handoff_.Next());
  EXPECT_THAT(handoff_.BlockReady(0), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(handoff_.Finish(model::BatchResult{}));
  EXPECT_OK(Result());
}

TEST_F(StepHandoffTest, LearningRatesAreOfOneStepAndComeBeforeItsBlocks) {
  EXPECT_THAT(handoff_.SetLearningRate(-1, 0.5), StatusIs(absl::StatusCode::kFailedPrecondition));
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  EXPECT_EQ(handoff_.learning_rate(0), std::nullopt);
  EXPECT_OK(handoff_.SetLearningRate(1, 0.5));
  EXPECT_EQ(handoff_.learning_rate(0), std::nullopt);
  EXPECT_OK(handoff_.SetLearningRate(-1, 0.25));
  EXPECT_OK(handoff_.BlockReady(0));
  EXPECT_THAT(handoff_.SetLearningRate(0, 0.5), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(handoff_.learning_rate(0), 0.25);
  EXPECT_EQ(handoff_.learning_rate(1), 0.5);
  EXPECT_OK(handoff_.Finish(model::BatchResult{}));
  EXPECT_OK(Result());
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  EXPECT_EQ(handoff_.learning_rate(1), std::nullopt);
  EXPECT_OK(handoff_.Finish(model::BatchResult{}));
  EXPECT_OK(Result());
}

TEST_F(StepHandoffTest, WeightsOfTheStepsOfARoundAddUpAndComeBeforeTheirBlocks) {
  EXPECT_THAT(handoff_.SetWeight(1), StatusIs(absl::StatusCode::kFailedPrecondition));
  const auto train = [this](int step, std::vector<int64_t> weights) {
    HandedStep handed = TrainingOn({{}});
    handed.step.step = step;
    ComputeOnAnotherThread(handed);
    EXPECT_OK(handoff_.Next());
    for (const int64_t weight : weights) EXPECT_OK(handoff_.SetWeight(weight));
    EXPECT_OK(handoff_.BlockReady(0));
    EXPECT_THAT(handoff_.SetWeight(9), StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_OK(handoff_.Finish(model::BatchResult{}));
    EXPECT_OK(Result());
    return handoff_.weight_of_round();
  };
  EXPECT_EQ(train(0, {}), std::nullopt);
  EXPECT_EQ(train(0, {100, 3}), 3);
  EXPECT_EQ(train(1, {4}), 7);
  EXPECT_EQ(train(2, {0}), 7);
  EXPECT_EQ(train(0, {0}), 0);
}

TEST_F(StepHandoffTest, MetricsAreMeansOverTheStepsOfARound) {
  EXPECT_THAT(handoff_.Log("a", 1.0), StatusIs(absl::StatusCode::kFailedPrecondition));
  const auto train = [this](int step, std::vector<double> values_of_a, bool is_skipped = false) {
    HandedStep handed = TrainingOn({{}});
    handed.step.step = step;
    ComputeOnAnotherThread(handed);
    EXPECT_OK(handoff_.Next());
    for (const double value : values_of_a) EXPECT_OK(handoff_.Log("a", value));
    if (step == 0) {
      EXPECT_OK(handoff_.Log("b", 7.0));
    }
    EXPECT_OK(is_skipped ? handoff_.Skip() : handoff_.Finish(model::BatchResult{}));
    EXPECT_OK(Result());
  };
  train(0, {100.0, 1.0});
  train(1, {});
  train(2, {2.0}, /*is_skipped=*/true);
  EXPECT_THAT(handoff_.MetricsOfRound(), ElementsAre(Pair("a", 1.5), Pair("b", 7.0)));
  train(0, {5.0});
  EXPECT_THAT(handoff_.MetricsOfRound(), ElementsAre(Pair("a", 5.0), Pair("b", 7.0)));
  // During an evaluation, nothing can be logged for training.
  HandedStep evaluation;
  evaluation.samples = {{}};
  ComputeOnAnotherThread(evaluation);
  EXPECT_OK(handoff_.Next());
  EXPECT_THAT(handoff_.Log("a", 1.0), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(handoff_.Finish(model::BatchResult{}));
  EXPECT_OK(Result());
  EXPECT_THAT(handoff_.MetricsOfRound(), IsEmpty());
}

TEST_F(StepHandoffTest, MetricsHaveALimitThatIsNamed) {
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  EXPECT_THAT(handoff_.Log("no spaces", 1.0), StatusIs(absl::StatusCode::kInvalidArgument));
  for (size_t i = 0; i < messages::kMaxMetrics; ++i)
    EXPECT_OK(handoff_.Log(absl::StrCat("m", i), 1.0));
  EXPECT_OK(handoff_.Log("m0", 2.0));
  EXPECT_THAT(handoff_.Log("more", 1.0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 32")));
  EXPECT_OK(handoff_.Finish(model::BatchResult{}));
  EXPECT_OK(Result());
}

TEST_F(StepHandoffTest, AStepIsSkippedBeforeABlockOfItIsTold) {
  EXPECT_THAT(handoff_.Skip(), StatusIs(absl::StatusCode::kFailedPrecondition));
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  EXPECT_OK(handoff_.BlockReady(1));
  EXPECT_THAT(handoff_.Skip(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("may have been sent")));
  EXPECT_OK(handoff_.Finish(model::BatchResult{}));
  ASSERT_OK(Result());
  EXPECT_FALSE(result_->is_skipped);
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  EXPECT_OK(handoff_.Skip());
  ASSERT_OK(Result());
  EXPECT_TRUE(result_->is_skipped);
}

TEST_F(StepHandoffTest, AFailureOfEitherSideEndsTheStep) {
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  EXPECT_OK(handoff_.Finish(absl::InternalError("out of memory")));
  EXPECT_THAT(Result(), StatusIs(absl::StatusCode::kInternal, "out of memory"));
  sink_.failure_ = absl::AbortedError("the life is over");
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  // The sink has failed. The step is over only when the program finishes it.
  EXPECT_OK(handoff_.BlockReady(0));
  EXPECT_OK(handoff_.BlockReady(1));
  EXPECT_OK(handoff_.Finish(model::BatchResult{}));
  EXPECT_THAT(Result(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(sink_.blocks_, ElementsAre(0));
}

TEST_F(StepHandoffTest, WhoLeavesTakesNoStepAndFinishesNone) {
  ComputeOnAnotherThread(TrainingOn({{}}));
  EXPECT_OK(handoff_.Next());
  handoff_.Leave();
  EXPECT_THAT(Result(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("in the middle of a step")));
  EXPECT_THAT(handoff_.Compute(TrainingOn({{}}), &sink_, /*get_more=*/nullptr),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(StepHandoffTest, TheEndIsToldToWhoeverAsks) {
  handoff_.End(absl::OkStatus());
  ASSERT_OK_AND_ASSIGN(const std::optional<HandedStep> none, handoff_.Next());
  EXPECT_FALSE(none.has_value());
  handoff_.End(absl::PermissionDeniedError("revoked"));
  EXPECT_THAT(handoff_.Next(), StatusIs(absl::StatusCode::kPermissionDenied, "revoked"));
}

}  // namespace
}  // namespace lodestar::capi
