// SPDX-License-Identifier: Apache-2.0

#include "common/checkpoints/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_replace.h"
#include "common/runtime/json.h"
#include "common/testing/status_matchers.h"

namespace lodestar::checkpoints {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const params::ModelSpec kSmall{"small", params::GptSpec{2, 4, 32, 8, 256}};

std::map<std::string, Json> FilesOf(const params::ModelSpec& spec) {
  std::map<std::string, Json> files;
  const auto texts = HuggingFaceFiles(spec);
  EXPECT_OK(texts.status());
  for (const NamedText& file : *texts) files[file.name] = *ParseJson(file.text);
  return files;
}

TEST(HuggingFaceTest, WhatIsWrittenIsReadAgain) {
  const auto files = FilesOf(kSmall);
  ASSERT_OK_AND_ASSIGN(const params::ModelSpec read,
                       ModelSpecFromHuggingFace(FormatJson(files.at("config.json"))));
  EXPECT_EQ(read.architecture, kSmall.architecture);
}

TEST(HuggingFaceTest, ATokenizerIsWrittenWhereTokensAreBytes) {
  const auto files = FilesOf(kSmall);
  const Json& vocabulary = files.at("tokenizer.json")["model"]["vocab"];
  EXPECT_EQ(vocabulary.size(), 256);
  EXPECT_EQ(vocabulary["a"], 'a');
  EXPECT_EQ(vocabulary["\u0120"], ' ');
  EXPECT_EQ(files.at("tokenizer_config.json")["model_max_length"], 8);
  EXPECT_TRUE(files.at("config.json")["eos_token_id"].is_null());
  const auto of_tokens = FilesOf(*params::ModelPreset("gpt2-124m"));
  EXPECT_FALSE(of_tokens.contains("tokenizer.json"));
  EXPECT_EQ(of_tokens.at("generation_config.json")["eos_token_id"], 50256);
}

TEST(HuggingFaceTest, OtherModelsAreNotWritten) {
  EXPECT_THAT(HuggingFaceFiles(*params::ModelPreset("mlp")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'mlp' is no gpt")));
}

TEST(HuggingFaceTest, WhatIsNotSaidIsAsInGpt2) {
  ASSERT_OK_AND_ASSIGN(const params::ModelSpec spec,
                       ModelSpecFromHuggingFace(R"({"model_type":"gpt2"})"));
  EXPECT_EQ(spec.architecture, params::ModelPreset("gpt2-124m")->architecture);
}

TEST(HuggingFaceTest, KnowsTheSecondNamesOfDimensions) {
  ASSERT_OK_AND_ASSIGN(const params::ModelSpec spec,
                       ModelSpecFromHuggingFace(
                           R"({"model_type":"gpt2","hidden_size":32,"num_attention_heads":4,
                               "num_hidden_layers":2,"max_position_embeddings":8,"n_head":4,
                               "vocab_size":256})"));
  EXPECT_EQ(spec.architecture, kSmall.architecture);
  EXPECT_THAT(
      ModelSpecFromHuggingFace(R"({"model_type":"gpt2","n_head":12,"num_attention_heads":6})"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("n_head"), HasSubstr("num_attention_heads"))));
}

TEST(HuggingFaceTest, ModelsThatComputeOtherwiseAreRefusedByField) {
  const auto error_of = [](const std::string& field) {
    const absl::Status status =
        ModelSpecFromHuggingFace(absl::StrCat(R"({"model_type": "gpt2", )", field, "}")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    return std::string(status.message());
  };
  EXPECT_THAT(error_of(R"("activation_function": "relu")"),
              AllOf(HasSubstr("activation_function"), HasSubstr("relu"), HasSubstr("gelu_new")));
  EXPECT_THAT(error_of(R"("layer_norm_epsilon": 1e-6)"), HasSubstr("layer_norm_epsilon"));
  EXPECT_THAT(error_of(R"("n_inner": 100)"), AllOf(HasSubstr("n_inner"), HasSubstr("3072")));
  EXPECT_THAT(error_of(R"("scale_attn_weights": false)"), HasSubstr("scale_attn_weights"));
  EXPECT_THAT(error_of(R"("scale_attn_by_inverse_layer_idx": true)"), HasSubstr("inverse_layer"));
  EXPECT_THAT(error_of(R"("tie_word_embeddings": false)"), HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(error_of(R"("n_layer": "2")"), HasSubstr("n_layer"));
  EXPECT_THAT(error_of(R"("n_head": 0)"), HasSubstr("n_head"));
  EXPECT_THAT(error_of(R"("n_head": 5)"), HasSubstr("num_heads 5"));
  EXPECT_OK(ModelSpecFromHuggingFace(
                R"({"model_type": "gpt2", "n_inner": 3072, "layer_norm_epsilon": 1e-05})")
                .status());
  EXPECT_THAT(ModelSpecFromHuggingFace(R"({"model_type": "llama"})").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("llama")));
  for (const char* bad : {"", "[]", "{}", "7", "{"}) {
    EXPECT_THAT(ModelSpecFromHuggingFace(bad).status(),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << bad;
  }
}

TEST(HuggingFaceTest, OtherThingsHaveAConfigToo) {
  EXPECT_TRUE(IsConfigOfGpt2(R"({"model_type": "gpt2", "activation_function": "relu"})"));
  for (const char* other : {"", "[]", "{}", R"({"model_type": "llama"})", R"({"model_type": 2})"}) {
    EXPECT_FALSE(IsConfigOfGpt2(other)) << other;
  }
}

TEST(HuggingFaceTest, AnIndexNamesFilesOfItsFolder) {
  EXPECT_THAT(FilesOfHuggingFaceIndex(R"({"weight_map": {"x": "b", "y": "a", "z": "b"}})"),
              IsOkAndHolds(ElementsAre("a", "b")));
  for (const char* bad :
       {"{}", R"({"weight_map": {"x": 1}})", R"({"weight_map": {"x": "../a"}})"}) {
    EXPECT_THAT(FilesOfHuggingFaceIndex(bad).status(), StatusIs(absl::StatusCode::kInvalidArgument))
        << bad;
  }
}

}  // namespace
}  // namespace lodestar::checkpoints
