// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/step/token_batches.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::ElementsAre;

std::string Write(const std::vector<uint16_t>& tokens, int extra_bytes = 0) {
  const std::string path = testing::TempDir() + "/tokens.bin";
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(uint16_t)));
  file << std::string(extra_bytes, 'x');
  return path;
}

TEST(TokenBatchesTest, ReadsSamplesFromFrontToBackAndAgain) {
  const auto batches = TokenBatches::Open(Write({1, 2, 3, 4, 5, 6, 7}), 2, 8);
  ASSERT_TRUE(batches.ok()) << batches.status();
  const data::HostBatch first = batches->Batch(/*step=*/0, /*batch_size=*/2);
  EXPECT_EQ(first.num_samples, 2);
  EXPECT_THAT(first.tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(first.targets, ElementsAre(2, 3, 4, 5));
  const data::HostBatch second = batches->Batch(/*step=*/1, /*batch_size=*/2);
  EXPECT_THAT(second.tokens, ElementsAre(5, 6, 1, 2));
  EXPECT_THAT(second.targets, ElementsAre(6, 7, 2, 3));
}

TEST(TokenBatchesTest, RefusesFilesThatDoNotFitTheModel) {
  const auto code_of = [](const std::string& path) {
    return TokenBatches::Open(path, /*context=*/2, /*vocabulary=*/8).status().code();
  };
  EXPECT_EQ(code_of(Write({1, 2})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(Write({1, 2, 3}, /*extra_bytes=*/1)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(Write({1, 2, 8})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of("/nowhere/tokens.bin"), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lodestar
