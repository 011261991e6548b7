// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/model/client_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/plan/shard_memory.h"

namespace lodestar::model {
namespace {

using Kind = ModelRefusal::Kind;

ServerRoom SmallServer() {
  return {.memory = {.total_bytes = 1 << 30, .available_bytes = 1 << 30, .limited_by = "the flag"}};
}

job::JobSpec ClientJob() {
  job::JobSpec job;
  job.model = *params::ModelPreset("client");
  job.batch_size = 1;
  return job;
}

params::Layout LayoutOf(int num_tensors, int64_t elements, int name_bytes = 8) {
  std::vector<params::TensorSpec> tensors(num_tensors);
  for (int i = 0; i < num_tensors; ++i) {
    tensors[i].name = absl::StrCat(i, std::string(name_bytes - absl::StrCat(i).size(), 'x'));
    tensors[i].shape = {elements};
  }
  return *params::Layout::FromTensors(std::move(tensors));
}

TEST(ClientLayoutTest, TakesWhatFitsTheServers) {
  EXPECT_EQ(CheckClientLayout(SmallServer(), ClientJob(), LayoutOf(300, 100'000)), std::nullopt);
}

TEST(ClientLayoutTest, RefusesMoreElementsThanTheMemoryHolds) {
  const params::Layout layout = LayoutOf(1, 1 << 28);
  ServerRoom room = SmallServer();
  const auto refusal = CheckClientLayout(room, ClientJob(), layout);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->kind, Kind::kMemory);
  EXPECT_EQ(refusal->present, 1 << 28);
  EXPECT_EQ(refusal->largest_shard, 1 << 28);
  EXPECT_FALSE(refusal->cause.ok());
  EXPECT_EQ(CheckClientLayout(room, ClientJob(), LayoutOf(1, params::Layout::kMaxElements))->kind,
            Kind::kMemory);
  room.num_shards = 2;
  room.memory.available_bytes = 1 << 29;
  EXPECT_EQ(CheckClientLayout(room, ClientJob(), layout)->largest_shard, 1 << 27);
  room = SmallServer();
  room.num_shards = 8;
  EXPECT_EQ(CheckClientLayout(room, ClientJob(), layout), std::nullopt)
      << "more servers have more memory";
}

TEST(ClientLayoutTest, CountsContributionsOnTheirWayIn) {
  ServerRoom room = SmallServer();
  const params::Layout layout = LayoutOf(300, 100'000);
  room.staging_bytes = 1 << 20;
  room.memory.available_bytes =
      plan::EstimateShardMemory(ClientJob(), layout.num_elements(), room.staging_bytes).steady();
  EXPECT_EQ(CheckClientLayout(room, ClientJob(), layout), std::nullopt);
  room.staging_bytes = 1 << 30;
  EXPECT_EQ(CheckClientLayout(room, ClientJob(), layout)->kind, Kind::kMemory);
}

TEST(ClientLayoutTest, RefusesWhatNoRegistrationHolds) {
  EXPECT_EQ(CheckClientLayout(SmallServer(), ClientJob(), LayoutOf(65537, 1)),
            (ModelRefusal{.kind = Kind::kTensors, .present = 65537, .allowed = 65536}));
  EXPECT_EQ(CheckClientLayout(SmallServer(), ClientJob(), LayoutOf(10'000, 1, 512)),
            (ModelRefusal{.kind = Kind::kNames, .present = 5'440'000, .allowed = 4'194'304}));
  job::JobSpec job = ClientJob();
  job.bucket_bytes = 4;
  EXPECT_EQ(CheckClientLayout({}, job, LayoutOf(1, int64_t{1} << 33)),
            (ModelRefusal{.kind = Kind::kBuckets, .present = 131'072, .allowed = 65'536}));
}

TEST(ClientLayoutTest, RefusesWhatCannotBeCut) {
  EXPECT_EQ(CheckClientLayout({.num_shards = 2}, ClientJob(), LayoutOf(1, 1))->kind, Kind::kShards);
  job::JobSpec job = ClientJob();
  job.bucket_bytes = 4;
  EXPECT_EQ(CheckClientLayout({}, job, LayoutOf(1, int64_t{1} << 37))->kind, Kind::kCut)
      << "more buckets than any plan has";
}

}  // namespace
}  // namespace lodestar::model
