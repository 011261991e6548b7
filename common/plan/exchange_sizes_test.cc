// SPDX-License-Identifier: Apache-2.0

#include "common/plan/exchange_sizes.h"

#include <gtest/gtest.h>

#include <string>

#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::plan {
namespace {

using ::testing::HasSubstr;

params::Layout LayoutOf(const std::string& preset) {
  return *params::BuildLayout(*params::ModelPreset(preset));
}

job::JobSpec JobWith(params::Encoding push, params::Encoding pull, int fragments = 1) {
  job::JobSpec job;
  job.mode = fragments > 1 ? job::Mode::kLocalSgd : job::Mode::kSync;
  job.local_steps = fragments;
  job.fragments = fragments;
  job.push_encoding = push;
  job.pull_encoding = pull;
  return job;
}

// Bytes that a worker sent and received in tests/bench/results/encodings.md.
TEST(ExchangeSizesTest, AreThoseThatRunsHaveCounted) {
  const params::Layout nano = LayoutOf("gpt-nano");
  const auto payload = [&nano](params::Encoding encoding) {
    return PlanExchangeSizes(JobWith(encoding, encoding), nano, 1)->Total().push_bytes;
  };
  EXPECT_EQ(payload(params::Encoding::kFp32), 3'337'216);
  EXPECT_EQ(payload(params::Encoding::kInt8), 847'348);
  EXPECT_EQ(payload(params::Encoding::kInt4), 430'188);
}

TEST(ExchangeSizesTest, EachDirectionHasItsEncoding) {
  const params::Layout nano = LayoutOf("gpt-nano");
  const RoundSizes total =
      PlanExchangeSizes(JobWith(params::Encoding::kBf16, params::Encoding::kFp32), nano, 1)
          ->Total();
  EXPECT_EQ(total.elements, nano.num_elements());
  EXPECT_EQ(total.push_bytes, 2 * nano.num_elements());
  EXPECT_EQ(total.pull_bytes, 4 * nano.num_elements());
}

TEST(ExchangeSizesTest, FragmentsTogetherAreTheWholeModel) {
  const params::Layout model = LayoutOf("gpt-mini");
  const ExchangeSizes whole =
      *PlanExchangeSizes(JobWith(params::Encoding::kInt4, params::Encoding::kInt8), model, 2);
  const ExchangeSizes cut =
      *PlanExchangeSizes(JobWith(params::Encoding::kInt4, params::Encoding::kInt8, 4), model, 2);
  ASSERT_EQ(whole.rounds.size(), 1u);
  ASSERT_EQ(cut.rounds.size(), 4u);
  EXPECT_EQ(cut.num_servers, 2);
  EXPECT_EQ(cut.Total().elements, model.num_elements());
  EXPECT_EQ(cut.Total().buckets, whole.Total().buckets);
  EXPECT_EQ(cut.Total().push_bytes, whole.Total().push_bytes);
  EXPECT_EQ(cut.Total().pull_bytes, whole.Total().pull_bytes);
  for (const RoundSizes& round : cut.rounds) EXPECT_GT(round.push_bytes, 0);
}

TEST(ExchangeSizesTest, AveragedTensorsTravelInFp32) {
  params::TensorSpec weights;
  weights.name = "weights";
  weights.shape = {256};
  params::TensorSpec mean;
  mean.name = "mean";
  mean.shape = {10};
  mean.block = 1;
  mean.averaged = true;
  const params::Layout layout = *params::Layout::FromTensors({weights, mean});
  const RoundSizes total =
      PlanExchangeSizes(JobWith(params::Encoding::kInt8, params::Encoding::kInt4), layout, 1)
          ->Total();
  EXPECT_EQ(total.push_bytes, params::EncodedBytes(params::Encoding::kInt8, 256) + 40);
  EXPECT_EQ(total.pull_bytes, params::EncodedBytes(params::Encoding::kInt4, 256) + 40);
}

TEST(ExchangeSizesTest, MoreFragmentsThanBucketsAreRefused) {
  EXPECT_THAT(PlanExchangeSizes(JobWith(params::Encoding::kInt4, params::Encoding::kInt4, 64),
                                LayoutOf("mlp"), 1)
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--fragments=64")));
}

}  // namespace
}  // namespace lodestar::plan
