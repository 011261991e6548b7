// SPDX-License-Identifier: Apache-2.0

// Tests of properties that only the GPT has: logits of the next token, and a token table that is
// used in parts.
#include "worker/model/gpt_model.h"

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/model_allocation.h"
#include "worker/model/testing/synthetic_training.h"

namespace lodestar::model {
namespace {

class NextTokenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    device_ = *factory::MakeDevice(GetParam(), /*threads=*/1, nullptr);
    model_ = *AllocateModel<GptModel>({SmallGptSpec(), /*max_batch=*/2}, device_.get());
    WriteBuf(device_.get(), model_->parameters(),
             RandomParameters(model_->layout(), /*noise=*/0.1, /*seed=*/3));
  }

  std::vector<float> LogitsAfter(absl::Span<const int32_t> tokens) {
    std::vector<float> logits;
    const absl::Status status = model_->NextTokenLogits(tokens, &logits);
    EXPECT_TRUE(status.ok()) << status;
    return logits;
  }

  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<GptModel> model_;
};

double LossOf(const std::vector<float>& logits, int32_t target) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum) - logits[target];
}

TEST_P(NextTokenTest, LogitsAfterEachPrefixGiveTheLossOfTraining) {
  const data::HostBatch batch = RandomBatch(SmallGptSpec(), 1, /*seed=*/8);
  const double expected = model_->Evaluate(batch, nullptr)->loss_sum;
  double loss = 0.0;
  for (size_t length = 1; length <= batch.tokens.size(); ++length) {
    loss +=
        LossOf(LogitsAfter(absl::MakeSpan(batch.tokens).first(length)), batch.targets[length - 1]);
  }
  // Logits are rounded to f32, with an error of 6e-8 for values around 1.
  EXPECT_NEAR(loss, expected, 1e-5);
}

TEST_P(NextTokenTest, ForgetsWhatIsMoreThanTheContextBack) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 13; ++i) tokens.push_back(3 * i % 40);
  const std::vector<int32_t> last(tokens.end() - model_->context(), tokens.end());
  EXPECT_EQ(LogitsAfter(tokens), LogitsAfter(last));
  EXPECT_NE(LogitsAfter(last), LogitsAfter(absl::MakeSpan(last).last(5)));
}

TEST_P(NextTokenTest, RefusesPromptsThatDoNotFit) {
  std::vector<float> logits;
  for (const std::vector<int32_t>& prompt : std::vector<std::vector<int32_t>>{{}, {40}, {-1}}) {
    EXPECT_EQ(model_->NextTokenLogits(prompt, &logits).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(NextTokenTest, AJobInTheLayoutOfEarlierReleasesComputesTheSameBits) {
  const params::Layout earlier = *params::BuildEarlierLayout(SmallGptSpec());
  const auto other = *AllocateModel<GptModel>(
      {.spec = SmallGptSpec(), .max_batch = 2, .layout = earlier}, device_.get());
  ASSERT_EQ(other->layout().hash(), earlier.hash());
  const std::vector<params::TransposedMatrix> transposed =
      *params::TransposedBetween(model_->layout(), "today", earlier, "earlier");
  const auto as_earlier = [&](const std::vector<double>& values) {
    std::vector<double> moved = values;
    for (const params::TransposedMatrix& matrix : transposed) {
      for (int64_t i = matrix.range.begin; i < matrix.range.end; ++i) {
        moved[matrix.WrittenAt(i)] = values[i];
      }
    }
    return moved;
  };
  const std::vector<double> parameters = ReadBuf(device_.get(), model_->parameters());
  ASSERT_NE(as_earlier(parameters), parameters);
  WriteBuf(device_.get(), other->parameters(), as_earlier(parameters));
  const data::HostBatch batch = RandomBatch(SmallGptSpec(), 2, /*seed=*/9);
  const auto result = model_->TrainStep(batch, nullptr, nullptr);
  const auto other_result = other->TrainStep(batch, nullptr, nullptr);
  ASSERT_TRUE(result.ok() && other_result.ok());
  EXPECT_EQ(other_result->loss_sum, result->loss_sum);
  EXPECT_EQ(ReadBuf(device_.get(), other->gradients()),
            as_earlier(ReadBuf(device_.get(), model_->gradients())));
}

using ::testing::ElementsAre;

// One call of the gate or the sink: the block, and the parts of the block in `ranges`. Empty
// `ranges` mean the whole block.
struct Told {
  int block = 0;
  std::vector<params::ElementRange> ranges;
  friend bool operator==(const Told&, const Told&) = default;
};

class TellingGate final : public WeightsGate, public GradientSink {
 public:
  absl::Status WaitForBlock(int block) override { return Note(&asked, block, {}); }
  absl::Status WaitForParts(int block, absl::Span<const params::ElementRange> parts) override {
    return Note(&asked, block, parts);
  }
  absl::Status BlockReady(int block) override { return Note(&told, block, {}); }
  absl::Status PartsReady(int block, absl::Span<const params::ElementRange> parts) override {
    return Note(&told, block, parts);
  }
  std::vector<Told> asked;
  std::vector<Told> told;

 private:
  static absl::Status Note(std::vector<Told>* into, int block,
                           absl::Span<const params::ElementRange> parts) {
    into->push_back({block, {parts.begin(), parts.end()}});
    return absl::OkStatus();
  }
};

class TokenRowsTest : public NextTokenTest {
 protected:
  // Makes a step on two samples with these tokens. Returns the calls of gate and sink.
  TellingGate Step(std::vector<int32_t> tokens) {
    data::HostBatch batch = RandomBatch(SmallGptSpec(), 2, /*seed=*/8);
    for (size_t i = 0; i < batch.tokens.size(); ++i) batch.tokens[i] = tokens[i % tokens.size()];
    TellingGate gate;
    const absl::Status status = model_->TrainStep(batch, &gate, &gate).status();
    EXPECT_TRUE(status.ok()) << status;
    return gate;
  }
};

// In the parameter space, row i of the token table is [32 i, 32 i + 32), and the position table is
// [1280, 1536).
TEST_P(TokenRowsTest, RowsThatTheDataDoesNotHaveAreReadAndChangedByTheHeadAlone) {
  const TellingGate first = Step({3, 4});
  EXPECT_THAT(first.asked, ElementsAre(Told{0, {{96, 160}, {1280, 1536}}}, Told{1, {}}, Told{2, {}},
                                       Told{3, {}}, Told{0, {}}));
  EXPECT_THAT(first.told, ElementsAre(Told{0, {{0, 96}, {160, 1280}}}, Told{3, {}}, Told{2, {}},
                                      Told{1, {}}, Told{0, {}}));
}

TEST_P(TokenRowsTest, WhatOneBatchHasHadIsReadFirstEverAfter) {
  Step({3, 4});
  Step({39});
  const TellingGate third = Step({4});
  EXPECT_EQ(third.asked.front(), (Told{0, {{96, 160}, {1248, 1280}, {1280, 1536}}}));
  EXPECT_EQ(third.told.front(), (Told{0, {{0, 96}, {160, 1248}}}));
}

TEST_P(TokenRowsTest, ATableOfWhichAllRowsAreUsedIsOnePiece) {
  std::vector<int32_t> tokens(16);
  for (int32_t first : {0, 16, 24}) {
    std::iota(tokens.begin(), tokens.end(), first);
    Step(tokens);
  }
  const TellingGate gate = Step({4});
  EXPECT_THAT(gate.asked, ElementsAre(Told{0, {{0, 1280}, {1280, 1536}}}, Told{1, {}}, Told{2, {}},
                                      Told{3, {}}));
  EXPECT_THAT(gate.told, ElementsAre(Told{3, {}}, Told{2, {}}, Told{1, {}}, Told{0, {}}));
}

INSTANTIATE_TEST_SUITE_P(Devices, TokenRowsTest, testing::Values("cpu", "oracle"));

INSTANTIATE_TEST_SUITE_P(Devices, NextTokenTest, testing::Values("cpu", "oracle"));

}  // namespace
}  // namespace lodestar::model
