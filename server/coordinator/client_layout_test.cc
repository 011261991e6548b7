#include "server/coordinator/client_layout.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/plan/shard_memory.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

CoordinatorConfig SmallServer() {
  CoordinatorConfig config;
  config.job.model = *ModelPreset("client");
  config.job.batch_size = 1;
  config.memory = {.total_bytes = 1 << 30, .available_bytes = 1 << 30, .limited_by = "the flag"};
  return config;
}

Layout LayoutOf(int num_tensors, int64_t elements, int name_bytes = 8) {
  std::vector<TensorSpec> tensors(num_tensors);
  for (int i = 0; i < num_tensors; ++i) {
    tensors[i].name = absl::StrCat(i, std::string(name_bytes - absl::StrCat(i).size(), 'x'));
    tensors[i].shape = {elements};
  }
  return *Layout::FromTensors(std::move(tensors));
}

auto IsRefused(const std::string& seen, const std::string& allowed) {
  return StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(seen), HasSubstr(allowed)));
}

TEST(ClientLayoutTest, WhatFitsTheServersIsTaken) {
  EXPECT_OK(CheckClientLayout(SmallServer(), SmallServer().job, LayoutOf(300, 100'000)));
}

TEST(ClientLayoutTest, MoreElementsThanTheMemoryHoldsAreRefused) {
  EXPECT_THAT(
      CheckClientLayout(SmallServer(), SmallServer().job, LayoutOf(1, Layout::kMaxElements)),
      IsRefused("1099511627776 elements", "the flag has 1.07 GB"));
  CoordinatorConfig config = SmallServer();
  const Layout layout = LayoutOf(1, 1 << 28);
  EXPECT_THAT(CheckClientLayout(config, config.job, layout),
              IsRefused("268435456 elements", "1.07 GB"));
  config.num_shards = 8;
  EXPECT_OK(CheckClientLayout(config, config.job, layout)) << "more servers have more memory";
}

TEST(ClientLayoutTest, ContributionsOnTheirWayInTakeWhatTheyMay) {
  CoordinatorConfig config = SmallServer();
  const Layout layout = LayoutOf(300, 100'000);
  config.staging_bytes = 1 << 20;
  config.memory.available_bytes =
      EstimateShardMemory(config.job, layout.num_elements(), config.staging_bytes).steady();
  EXPECT_OK(CheckClientLayout(config, config.job, layout));
  config.staging_bytes = 1 << 30;
  EXPECT_THAT(CheckClientLayout(config, config.job, layout),
              IsRefused("30000000 elements", "staging"));
}

TEST(ClientLayoutTest, WhatNoRegistrationHoldsIsRefused) {
  EXPECT_THAT(CheckClientLayout(SmallServer(), SmallServer().job, LayoutOf(65537, 1)),
              IsRefused("65537 tensors", "allowed are 65536"));
  EXPECT_THAT(CheckClientLayout(SmallServer(), SmallServer().job, LayoutOf(10'000, 1, 512)),
              IsRefused("5440000 bytes", "allowed are 4194304"));
  CoordinatorConfig config = SmallServer();
  config.memory = {};
  config.job.bucket_bytes = 4;
  EXPECT_THAT(CheckClientLayout(config, config.job, LayoutOf(1, int64_t{1} << 33)),
              IsRefused("131072 buckets", "allowed are 65536"));
}

}  // namespace
}  // namespace lodestar
