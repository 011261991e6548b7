// SPDX-License-Identifier: Apache-2.0

#include "worker/model/text_generator.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model whose next byte is the last byte plus 1 or plus 2. Plus 2 is half as likely.
class CountingModel : public NextTokenModel {
 public:
  explicit CountingModel(int64_t vocabulary = 256) : vocabulary_(vocabulary) {}
  int64_t vocabulary() const override { return vocabulary_; }
  int64_t context() const override { return 4; }
  absl::Status NextTokenLogits(absl::Span<const int32_t> tokens,
                               std::vector<float>* logits) override {
    logits->assign(vocabulary_, -30.0f);
    (*logits)[(tokens.back() + 1) % vocabulary_] = 0.0f;
    (*logits)[(tokens.back() + 2) % vocabulary_] = -std::log(2.0f);
    seen_.emplace_back(tokens.begin(), tokens.end());
    return absl::OkStatus();
  }
  const std::vector<std::vector<int32_t>>& seen() const { return seen_; }

 private:
  int64_t vocabulary_;
  std::vector<std::vector<int32_t>> seen_;
};

const ByteTokenizer kBytes;

std::string Generate(const TextGenerator::Config& config, const std::string& prompt,
                     int64_t num_bytes) {
  CountingModel model;
  std::string text;
  const absl::StatusOr<TextGenerator> generator = TextGenerator::Create(&model, &kBytes, config);
  EXPECT_TRUE(generator.ok()) << generator.status();
  const absl::Status status = generator->Generate(prompt, num_bytes, [&](absl::string_view bytes) {
    absl::StrAppend(&text, bytes);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return text;
}

TEST(DrawTokenTest, FollowsTheDistribution) {
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f), std::log(0.3f)};
  std::vector<int> counts(3);
  constexpr int kDraws = 1000;
  for (int i = 0; i < kDraws; ++i) ++counts[DrawToken(logits, 1.0, 0, (i + 0.5) / kDraws)];
  EXPECT_EQ(counts, std::vector<int>({200, 500, 300}));
}

TEST(DrawTokenTest, TopKLeavesOnlyTheLargest) {
  const std::vector<float> logits = {1.0f, 5.0f, 4.9f, 1.0f};
  for (int i = 0; i < 100; ++i) {
    const int32_t token = DrawToken(logits, 10.0, 2, (i + 0.5) / 100);
    EXPECT_TRUE(token == 1 || token == 2);
  }
}

TEST(DrawTokenTest, LowTemperatureTakesTheLargestAndTheFirstOfEquals) {
  const std::vector<float> logits = {1.0f, 2.0f, 2.0f};
  EXPECT_EQ(DrawToken(logits, 0.0, 0, 0.999), 1);
  EXPECT_EQ(DrawToken({1.0f, 2.0f}, 1e-3, 0, 0.999), 1);
  EXPECT_EQ(DrawToken({1.0f, 2.0f}, 1e-308, 0, 0.999), 1);
}

TEST(TextGeneratorTest, ContinuesThePrompt) {
  EXPECT_EQ(Generate({.temperature = 0.0}, "a", 4), "bcde");
  EXPECT_EQ(Generate({.temperature = 1.0, .top_k = 1}, "A", 3), "BCD");
  EXPECT_EQ(Generate({.temperature = 0.0}, "", 2), "\x0b\x0c");
  EXPECT_EQ(Generate({}, "a", 0), "");
}

TEST(TextGeneratorTest, SeedDecides) {
  const std::string text = Generate({.seed = 1}, "\x01", 60);
  EXPECT_EQ(Generate({.seed = 1}, "\x01", 60), text);
  EXPECT_NE(Generate({.seed = 2}, "\x01", 60), text);
  // A longer text begins with the same bytes.
  EXPECT_EQ(Generate({.seed = 1}, "\x01", 90).substr(0, 60), text);
}

TEST(TextGeneratorTest, ShowsTheModelAllBytesSoFar) {
  CountingModel model;
  const absl::StatusOr<TextGenerator> generator =
      TextGenerator::Create(&model, &kBytes, {.temperature = 0.0});
  ASSERT_TRUE(generator.ok()) << generator.status();
  ASSERT_TRUE(
      generator->Generate("\xf0", 2, [](absl::string_view) { return absl::OkStatus(); }).ok());
  EXPECT_EQ(model.seen(), (std::vector<std::vector<int32_t>>{{0xf0}, {0xf0, 0xf1}}));
}

TEST(TextGeneratorTest, EndsWithItsReader) {
  CountingModel model;
  int64_t bytes = 0;
  const absl::Status status = TextGenerator::Create(&model, &kBytes, {})
                                  ->Generate("a", 100, [&bytes](absl::string_view) -> absl::Status {
                                    if (++bytes < 3) return absl::OkStatus();
                                    return absl::ResourceExhaustedError("the disk is full");
                                  });
  EXPECT_EQ(status.message(), "the disk is full");
  EXPECT_EQ(bytes, 3);
}

// A tokenizer in which token 3 ends a text. Each other token has as many bytes as its number.
class CountedTokenizer : public Tokenizer {
 public:
  int64_t vocabulary() const override { return 6; }
  std::vector<int32_t> Encode(absl::string_view text) const override {
    return {static_cast<int32_t>(text.size())};
  }
  absl::string_view BytesOf(int32_t token) const override {
    return absl::string_view("bytes").substr(0, token);
  }
  std::vector<int32_t> Beginning() const override { return {}; }
  std::optional<int32_t> end_of_text() const override { return 3; }
};

TEST(TextGeneratorTest, WritesWholeTokensUntilTheTextEnds) {
  const CountedTokenizer tokenizer;
  const auto generate = [&](const std::string& prompt, int64_t num_bytes) {
    CountingModel model(6);
    std::vector<std::string> parts;
    const absl::Status status = TextGenerator::Create(&model, &tokenizer, {.temperature = 0.0})
                                    ->Generate(prompt, num_bytes, [&](absl::string_view bytes) {
                                      parts.emplace_back(bytes);
                                      return absl::OkStatus();
                                    });
    if (!status.ok()) parts = {std::string(status.message())};
    return parts;
  };
  EXPECT_THAT(generate("aaa", 6), ElementsAre("byte", "bytes"));
  EXPECT_THAT(generate("aaa", 10), ElementsAre("byte", "bytes", ""));
  EXPECT_THAT(generate("aaaa", 100), ElementsAre("bytes", "", "b", "by"));
  EXPECT_THAT(generate("", 1), ElementsAre(HasSubstr("give a prompt")));
}

class DivergedModel final : public CountingModel {
 public:
  absl::Status NextTokenLogits(absl::Span<const int32_t> /*tokens*/,
                               std::vector<float>* logits) override {
    logits->assign(vocabulary(), std::nanf(""));
    return absl::OkStatus();
  }
};

TEST(TextGeneratorTest, NamesLogitsThatAreNotFinite) {
  DivergedModel model;
  const auto generator = TextGenerator::Create(&model, &kBytes, {});
  ASSERT_TRUE(generator.ok()) << generator.status();
  std::string text;
  const absl::Status status = generator->Generate("a", 4, [&](absl::string_view bytes) {
    absl::StrAppend(&text, bytes);
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("logit"));
  EXPECT_EQ(text, "");
}

TEST(TextGeneratorTest, RefusesWhatItCannotDo) {
  const auto code = [](int64_t vocabulary, const TextGenerator::Config& config) {
    CountingModel model(vocabulary);
    return TextGenerator::Create(&model, &kBytes, config).status().code();
  };
  EXPECT_EQ(code(256, {}), absl::StatusCode::kOk);
  EXPECT_EQ(code(50257, {}), absl::StatusCode::kOk);
  EXPECT_EQ(code(255, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(256, {.temperature = -1.0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(256, {.temperature = NAN}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(256, {.top_k = -1}), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lodestar::model
