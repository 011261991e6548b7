// SPDX-License-Identifier: Apache-2.0

#include "worker/model/step_graphs.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/oracle/oracle_device.h"

namespace lodestar::model {
namespace {

using ::testing::ElementsAre;

// Records the calls of its methods. A graph of this device is only a number, and launching the
// graph computes nothing.
class JournalDevice : public oracle::OracleDevice {
 public:
  bool supports_graphs() const override { return true; }
  void BeginGraph() override { journal.push_back("begin"); }
  absl::StatusOr<kernels::GraphId> EndGraph() override {
    journal.push_back("end");
    if (fails) return absl::InternalError("cannot record");
    return ++num_graphs;
  }
  void LaunchGraph(kernels::GraphId graph) override {
    journal.push_back(absl::StrCat("launch ", graph));
  }

  std::vector<std::string> journal;
  kernels::GraphId num_graphs = 0;
  bool fails = false;
};

class StepGraphsTest : public testing::Test {
 protected:
  absl::Status Run(const StepGraphs::Key& key, const absl::Status& result = absl::OkStatus()) {
    return graphs_.Run(key, [&] {
      device_.journal.push_back("step");
      return result;
    });
  }
  std::vector<std::string> TakeJournal() { return std::exchange(device_.journal, {}); }

  JournalDevice device_;
  StepGraphs graphs_{&device_};
};

TEST_F(StepGraphsTest, RunsThenRecordsThenLaunches) {
  const StepGraphs::Key key{4, kernels::Accumulate::kSet, 0.25};
  ASSERT_TRUE(Run(key).ok());
  EXPECT_THAT(TakeJournal(), ElementsAre("step"));
  ASSERT_TRUE(Run(key).ok());
  EXPECT_THAT(TakeJournal(), ElementsAre("begin", "step", "end", "launch 1"));
  ASSERT_TRUE(Run(key).ok());
  EXPECT_THAT(TakeJournal(), ElementsAre("launch 1"));
}

TEST_F(StepGraphsTest, EveryPartOfTheKeyCounts) {
  const std::vector<StepGraphs::Key> keys = {{4, kernels::Accumulate::kSet, 0.25},
                                             {4, kernels::Accumulate::kAdd, 0.25},
                                             {3, kernels::Accumulate::kSet, 0.25},
                                             {4, kernels::Accumulate::kSet, 0.125}};
  for (int round = 0; round < 2; ++round) {
    for (const StepGraphs::Key& key : keys) ASSERT_TRUE(Run(key).ok());
  }
  TakeJournal();
  for (const StepGraphs::Key& key : keys) ASSERT_TRUE(Run(key).ok());
  EXPECT_THAT(TakeJournal(), ElementsAre("launch 1", "launch 2", "launch 3", "launch 4"));
}

TEST_F(StepGraphsTest, KeepsAFewGraphsOnly) {
  constexpr int kSizes = 100;
  for (int round = 0; round < 3; ++round) {
    for (int samples = 1; samples <= kSizes; ++samples) {
      ASSERT_TRUE(Run({samples, kernels::Accumulate::kSet, 1.0}).ok());
    }
  }
  EXPECT_GT(device_.num_graphs, 0);
  EXPECT_LT(device_.num_graphs, 20);
}

TEST_F(StepGraphsTest, ErrorsEndTheStepAndTheRecording) {
  const StepGraphs::Key key{4, kernels::Accumulate::kSet, 0.25};
  EXPECT_EQ(Run(key, absl::AbortedError("no")).code(), absl::StatusCode::kAborted);
  TakeJournal();
  EXPECT_EQ(Run(key, absl::AbortedError("no")).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(TakeJournal(), ElementsAre("begin", "step", "end"));
  device_.fails = true;
  EXPECT_EQ(Run(key).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(TakeJournal(), ElementsAre("begin", "step", "end"));
}

}  // namespace
}  // namespace lodestar::model
