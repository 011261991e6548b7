// SPDX-License-Identifier: Apache-2.0

#include "common/checkpoints/same_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace lodestar::checkpoints {
namespace {

using ::testing::HasSubstr;

params::TensorSpec Tensor(std::string name, std::vector<int64_t> shape, int block = 0) {
  params::TensorSpec tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  tensor.block = block;
  return tensor;
}

params::Layout Job() {
  return *params::Layout::FromTensors({Tensor("a", {2, 3}), Tensor("b", {5}, 1)});
}

absl::Status Check(std::vector<params::TensorSpec> program) {
  return CheckSameTensors(Job(), "the job", *params::Layout::FromTensors(std::move(program)),
                          "this program");
}

TEST(SameTensorsTest, OrderAndBlocksMayDiffer) {
  EXPECT_OK(Check({Tensor("b", {5}), Tensor("a", {2, 3})}));
}

TEST(SameTensorsTest, NamesOfHuggingFaceAreThoseOfTheJob) {
  EXPECT_OK(Check({Tensor("transformer.b", {5}), Tensor("transformer.a", {2, 3})}));
  const params::Layout job = Job();
  EXPECT_EQ(FindTensorOfProgram(job, "transformer.b"), job.Find("b"));
  EXPECT_EQ(FindTensorOfProgram(job, "b"), job.Find("b"));
  EXPECT_EQ(FindTensorOfProgram(job, "transformer.c"), nullptr);
}

TEST(SameTensorsTest, APrefixThatTheJobHasItselfStays) {
  const params::Layout job =
      *params::Layout::FromTensors({Tensor("transformer.b", {5}), Tensor("b", {5}, 1)});
  EXPECT_EQ(FindTensorOfProgram(job, "transformer.b")->block, 0);
  EXPECT_EQ(FindTensorOfProgram(job, "b")->block, 1);
}

TEST(SameTensorsTest, TheFirstDifferenceIsNamed) {
  EXPECT_THAT(Check({Tensor("a", {2, 3})}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the job has tensor 'b' [5], which this program does not have")));
  EXPECT_THAT(Check({Tensor("b", {5}), Tensor("c", {1}), Tensor("a", {2, 3})}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("this program has tensor 'c' [1], which the job does not have")));
  EXPECT_THAT(Check({Tensor("b", {5}), Tensor("a", {3, 2})}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("tensor 'a' [3,2], but the job has tensor 'a' [2,3]")));
  params::TensorSpec averaged = Tensor("b", {5}, 1);
  averaged.averaged = true;
  EXPECT_THAT(
      Check({Tensor("a", {2, 3}), averaged}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("this program has tensor 'b' [5], averaged, but the job has tensor")));
  EXPECT_THAT(Check({Tensor("b", {5}), Tensor("a", {2, 3}), Tensor("transformer.b", {5})}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("two tensors that are both tensor 'b' [5] of the job")));
}

TEST(SameTensorsTest, WhatDecaysOnOneSideOnlyIsTold) {
  std::vector<params::TensorSpec> tensors = {Tensor("b", {5}), Tensor("a", {2, 3}),
                                             Tensor("c", {1})};
  const params::Layout job = *params::Layout::FromTensors(tensors);
  EXPECT_EQ(DifferingDecay(job, job), "");
  tensors[1].decay = !tensors[1].decay;
  EXPECT_THAT(DifferingDecay(job, *params::Layout::FromTensors(tensors)),
              tensors[1].decay ? "weight decay applies to 'a' in this program, and not in the job"
                               : "weight decay applies to 'a' in the job, and not in this program");
  tensors[2].decay = !tensors[2].decay;
  EXPECT_THAT(DifferingDecay(job, *params::Layout::FromTensors(tensors)), HasSubstr("'a'"));
  EXPECT_THAT(DifferingDecay(job, *params::Layout::FromTensors(tensors)),
              HasSubstr(", and 1 more tensors differ"));
}

}  // namespace
}  // namespace lodestar::checkpoints
