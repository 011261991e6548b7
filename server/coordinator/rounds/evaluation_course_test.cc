// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/evaluation_course.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace lodestar::rounds {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Part = EvaluationCourse::Part;

constexpr HeldoutSums kTwo = {.loss_sum = 4.0, .correct = 1, .predictions = 2};
constexpr HeldoutSums kThree = {.loss_sum = 3.0, .correct = 2, .predictions = 3};

TEST(EvaluationCourseTest, OneRoundWithAllDataSetsIsAWholeEvaluation) {
  EvaluationCourse course;
  course.Begin({{0, 2}, {4, 3}});
  EXPECT_FALSE(course.can_begin());
  EXPECT_THAT(course.Take(Round(8), {0, 4}), ElementsAre(Part{0, 2}, Part{4, 3}));
  EXPECT_TRUE(course.can_begin());
  const std::optional<HeldoutSums> result = course.Return(Round(8), kTwo);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->predictions, 2);
  EXPECT_TRUE(result->complete);
  EXPECT_FALSE(course.Return(Round(8), kTwo).has_value()) << "once";
}

TEST(EvaluationCourseTest, PartsComeInRoundByRound) {
  EvaluationCourse course;
  course.Begin({{0, 2}, {1, 3}});
  EXPECT_THAT(course.Take(Round(8), {0}), ElementsAre(Part{0, 2}));
  EXPECT_THAT(course.Take(Round(9), {0}), IsEmpty()) << "has been taken";
  EXPECT_FALSE(course.Return(Round(8), kTwo).has_value()) << "the other set is still owed";
  EXPECT_FALSE(course.Return(Round(9), {}).has_value());
  EXPECT_THAT(course.Take(Round(10), {1}), ElementsAre(Part{1, 3}));
  const std::optional<HeldoutSums> result = course.Return(Round(10), kThree);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->loss_sum, 7.0);
  EXPECT_EQ(result->correct, 3);
  EXPECT_EQ(result->predictions, 5);
}

TEST(EvaluationCourseTest, EvaluationsMayOverlapOnceAllPartsTravel) {
  EvaluationCourse course;
  course.Begin({{0, 2}});
  course.Take(Round(1), {0});
  course.Begin({{0, 3}});
  course.Take(Round(2), {0});
  EXPECT_EQ(course.Return(Round(2), kThree)->predictions, 3);
  EXPECT_EQ(course.Return(Round(1), kTwo)->predictions, 2);
}

TEST(EvaluationCourseTest, ADataSetThatNobodyHasIsNotWaitedFor) {
  EvaluationCourse course;
  course.Begin({{0, 2}, {1, 3}});
  course.Take(Round(8), {0});
  course.KeepOnly({0});
  EXPECT_TRUE(course.can_begin());
  const std::optional<HeldoutSums> result = course.Return(Round(8), kTwo);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->predictions, 2);
  EXPECT_FALSE(result->complete);
}

TEST(EvaluationCourseTest, ResultOfTheOthersComesWithTheNextRoundIfTheLastPartIsLost) {
  EvaluationCourse course;
  course.Begin({{0, 2}, {1, 3}});
  course.Take(Round(8), {0});
  course.Take(Round(9), {1});
  EXPECT_FALSE(course.Return(Round(8), kTwo).has_value());
  course.Lose(Round(9));
  const std::optional<HeldoutSums> result = course.Return(Round(10), {});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->predictions, 2);
  EXPECT_FALSE(result->complete);
}

TEST(EvaluationCourseTest, NothingIsSaidOfAnEvaluationThatFoundNobody) {
  EvaluationCourse course;
  course.Begin({{0, 2}});
  course.Take(Round(8), {0});
  course.Lose(Round(8));
  EXPECT_FALSE(course.Return(Round(9), {}).has_value());
  course.Begin({{0, 0}});
  EXPECT_TRUE(course.can_begin());
  EXPECT_FALSE(course.Return(Round(10), {}).has_value());
}

}  // namespace
}  // namespace lodestar::rounds
