// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/memory_plan.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/params/model_spec.h"
#include "common/runtime/json.h"
#include "common/runtime/text_table.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;

job::JobSpec JobOf(absl::string_view preset) {
  job::JobSpec job;
  job.mode = job::Mode::kSync;
  job.model = *params::ModelPreset(preset);
  return job;
}

MemoryPlan PlanOf(const job::JobSpec& job, int servers = 1) {
  return *PlanMemory(job, *params::BuildLayout(job.model), servers);
}

// With AdamW a server has four vectors: the weights, two of the optimizer's state, and the sums of
// a round.
TEST(MemoryPlanTest, AServerHasFourVectorsAndStaging) {
  constexpr int64_t kVectorBytes = int64_t{4} * 1'557'611'200;
  const MemoryPlan plan = PlanOf(JobOf("gpt2-1.5b"));
  EXPECT_EQ(plan.server.weights, kVectorBytes);
  EXPECT_EQ(plan.server.optimizer_state, 2 * kVectorBytes);
  EXPECT_EQ(plan.server.sums, kVectorBytes);
  EXPECT_EQ(plan.checkpoint_bytes, 3 * kVectorBytes);
  EXPECT_EQ(plan.server.peak(), plan.server.steady() + 3 * kVectorBytes);
  EXPECT_THAT(MemoryText(plan, kUnlimitedColumns),
              AllOf(HasSubstr("Server: 24.99 GB: weights 6.23 GB, optimizer state 12.46 GB, sums "),
                    HasSubstr("43.68 GB while a checkpoint is written"),
                    HasSubstr("A checkpoint takes 18.69 GB on disk.")));
}

TEST(MemoryPlanTest, SaysThatNoCardHoldsAWorker) {
  job::JobSpec job = JobOf("gpt2-124m");
  EXPECT_THAT(MemoryText(PlanOf(job), kUnlimitedColumns), Not(HasSubstr("NO CARD")));
  EXPECT_TRUE(FitsAPlannedCard(PlanOf(job)));
  auto& gpt = std::get<params::GptSpec>(job.model.architecture);
  gpt.num_layers = 64;
  gpt.width = 8192;
  gpt.num_heads = 64;
  job.mode = job::Mode::kLocalSgd;
  EXPECT_THAT(MemoryText(PlanOf(job), kUnlimitedColumns),
              HasSubstr("NO CARD of up to 140 GB has enough memory for a worker"));
  EXPECT_FALSE(FitsAPlannedCard(PlanOf(job)));
}

TEST(MemoryPlanTest, ServersShareAndWorkersDoNot) {
  const job::JobSpec job = JobOf("gpt2-1.5b");
  const MemoryPlan one = PlanOf(job), four = PlanOf(job, 4);
  EXPECT_NEAR(static_cast<double>(four.server.weights) / static_cast<double>(one.server.weights),
              0.25, 0.01);
  EXPECT_EQ(four.checkpoint_bytes, one.checkpoint_bytes);
  ASSERT_EQ(four.workers.size(), one.workers.size());
  for (size_t i = 0; i < one.workers.size(); ++i) {
    EXPECT_EQ(four.workers[i].fixed_bytes, one.workers[i].fixed_bytes);
  }
  EXPECT_THAT(MemoryText(four, kUnlimitedColumns),
              AllOf(HasSubstr("Each of 4 servers: "), HasSubstr("on disk, all servers together")));
}

TEST(MemoryPlanTest, AWorkerHasALineForEachDeviceDTypeAndRecomputation) {
  const MemoryPlan plan = PlanOf(JobOf("gpt2-1.5b"));
  std::vector<std::string> lines;
  for (const WorkerMemory& worker : plan.workers) {
    lines.push_back(absl::StrCat(worker.device, " ", worker.dtype, " ", worker.recompute));
  }
  EXPECT_THAT(lines, ElementsAre("cpu fp32 none", "cpu fp32 gelu", "cpu fp32 block",
                                 "card fp32 none", "card fp32 gelu", "card fp32 block",
                                 "card bf16 none", "card bf16 gelu", "card bf16 block"));
  // A model that cannot recompute has one line for each device and dtype.
  EXPECT_EQ(PlanOf(JobOf("cnn")).workers.size(), 3);
}

TEST(MemoryPlanTest, LargerMemoryHoldsLargerMicroBatches) {
  const MemoryPlan plan = PlanOf(JobOf("gpt2-1.5b"));
  const WorkerMemory& wide = plan.workers.at(3);
  EXPECT_EQ(wide.largest_batches.at(0), 0) << "12.5 GB and 5 GB a sample in 16 GB";
  EXPECT_THAT(wide.largest_batches.at(4), Gt(wide.largest_batches.at(3)));
  const WorkerMemory& narrow = plan.workers.at(6);
  EXPECT_GT(narrow.fixed_bytes, wide.fixed_bytes) << "the narrow parameters";
  EXPECT_LT(narrow.bytes_per_sample, 0.6 * static_cast<double>(wide.bytes_per_sample));
  EXPECT_THAT(MemoryText(plan, kUnlimitedColumns),
              AllOf(HasSubstr("16 GB  24 GB  40 GB  80 GB  140 GB"),
                    HasSubstr("- means that not one sample")));
}

TEST(MemoryPlanTest, LocalStepsKeepTheOptimizerOnTheWorker) {
  job::JobSpec job = JobOf("gpt2-124m");
  const MemoryPlan sync = PlanOf(job);
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = 8;
  const MemoryPlan local = PlanOf(job);
  const int64_t vector_bytes = 4 * params::BuildLayout(job.model)->num_elements();
  EXPECT_EQ(local.workers[0].fixed_bytes - sync.workers[0].fixed_bytes, 3 * vector_bytes);
  EXPECT_LT(local.server.optimizer_state, sync.server.optimizer_state);
}

TEST(MemoryPlanTest, OfAClientsModelOnlyServersAreKnown) {
  job::JobSpec job = JobOf("client");
  const MemoryPlan plan =
      *PlanMemory(job, *params::BuildLayout(*params::ModelPreset("gpt-nano")), 1);
  EXPECT_TRUE(plan.workers.empty());
  EXPECT_THAT(MemoryText(plan, kUnlimitedColumns),
              HasSubstr("depends on the program that computes"));
}

TEST(MemoryPlanTest, JsonHasTheSameNumbers) {
  const MemoryPlan plan = PlanOf(JobOf("gpt2-1.5b"));
  const Json json = MemoryJson(plan);
  EXPECT_EQ(*GetInt64(**GetObject(json, "server"), "peak_bytes"), plan.server.peak());
  EXPECT_EQ(*GetInt64(json, "checkpoint_bytes"), plan.checkpoint_bytes);
  const Json& first = (**GetArray(json, "workers"))[0];
  EXPECT_EQ(*GetString(first, "recompute"), "none");
  EXPECT_EQ(*GetInt64(first, "fixed_bytes"), plan.workers[0].fixed_bytes);
  EXPECT_EQ(*GetInt64(**GetObject(first, "largest_micro_batch"), "80GB"),
            plan.workers[0].largest_batches[3]);
}

}  // namespace
}  // namespace lodestar::psctl
