// SPDX-License-Identifier: Apache-2.0

#include "common/checkpoints/hugging_face.h"

#include <cmath>
#include <set>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/runtime/byte_letters.h"
#include "common/runtime/json.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::checkpoints {
namespace {

constexpr char kModelType[] = "gpt2";
constexpr char kArchitecture[] = "GPT2LMHeadModel";
constexpr int kBytes = 256;
constexpr int kGpt2Vocabulary = 50257;
constexpr int kGpt2EndOfText = 50256;
constexpr double kNormEpsilon = 1e-5;
constexpr int kMlpExpansion = 4;

absl::Status Unlike(absl::string_view field, const Json& seen, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", field, "\" is ", PeerText(FormatJson(seen)),
                                                 "; Lodestar's models have ", wanted));
}

// Returns a field of the config, which may have one of two names. If the field is missing, returns
// `otherwise`, the default of GPT2Config().
absl::StatusOr<int> GetDimension(const Json& config, absl::string_view field,
                                 absl::string_view second_name, int otherwise) {
  const bool has_field = config.contains(std::string(field));
  const auto second = config.find(std::string(second_name));
  if (has_field && second != config.end() && *second != *config.find(std::string(field))) {
    return Unlike(second_name, *second,
                  absl::StrCat("the same number here and in \"", field, "\""));
  }
  if (!has_field) field = second_name;
  if (!config.contains(std::string(field))) return otherwise;
  ASSIGN_OR_RETURN(const int64_t value, GetInt64(config, field));
  constexpr int64_t kMost = 1 << 30;
  if (value < 1 || value > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", field, "\" is ", value, "; allowed are 1 to ", kMost));
  }
  return static_cast<int>(value);
}

// Checks that the field is missing or has one of `values`.
absl::Status CheckField(const Json& config, const char* field, const std::vector<Json>& values) {
  const auto seen = config.find(field);
  if (seen == config.end()) return absl::OkStatus();
  std::vector<std::string> wanted;
  for (const Json& value : values) {
    if (*seen == value) return absl::OkStatus();
    wanted.push_back(FormatJson(value));
  }
  return Unlike(field, *seen, absl::StrJoin(wanted, " or "));
}

absl::Status CheckArchitecture(const Json& config, int width) {
  if (!config.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  if (!config.contains("model_type")) {
    return absl::InvalidArgumentError("has no \"model_type\"; it must be \"gpt2\"");
  }
  RETURN_IF_ERROR(CheckField(config, "model_type", {kModelType}));
  // Both names mean GELU in its tanh form.
  RETURN_IF_ERROR(CheckField(config, "activation_function", {"gelu_new", "gelu_pytorch_tanh"}));
  RETURN_IF_ERROR(CheckField(config, "n_inner", {Json(nullptr), kMlpExpansion * int64_t{width}}));
  RETURN_IF_ERROR(CheckField(config, "scale_attn_weights", {true}));
  RETURN_IF_ERROR(CheckField(config, "scale_attn_by_inverse_layer_idx", {false}));
  RETURN_IF_ERROR(CheckField(config, "add_cross_attention", {false}));
  RETURN_IF_ERROR(CheckField(config, "tie_word_embeddings", {true}));
  if (!config.contains("layer_norm_epsilon")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const double epsilon, GetDouble(config, "layer_norm_epsilon"));
  if (std::abs(epsilon - kNormEpsilon) < 1e-3 * kNormEpsilon) return absl::OkStatus();
  return Unlike("layer_norm_epsilon", epsilon, "1e-05");
}

Json ConfigOf(const params::GptSpec& gpt) {
  Json config = Json::object();
  config["architectures"] = Json::array({kArchitecture});
  config["model_type"] = kModelType;
  config["activation_function"] = "gelu_new";
  config["n_layer"] = gpt.num_layers;
  config["n_head"] = gpt.num_heads;
  config["n_embd"] = gpt.width;
  config["n_inner"] = nullptr;
  config["n_positions"] = gpt.context;
  config["n_ctx"] = gpt.context;
  config["vocab_size"] = gpt.vocabulary;
  config["layer_norm_epsilon"] = kNormEpsilon;
  config["tie_word_embeddings"] = true;
  config["scale_attn_weights"] = true;
  config["scale_attn_by_inverse_layer_idx"] = false;
  config["reorder_and_upcast_attn"] = false;
  for (const char* field : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config[field] = gpt.dropout;
  config["initializer_range"] = 0.02;
  config["use_cache"] = true;
  config["torch_dtype"] = "float32";
  return config;
}

// Sets the tokens that begin and end a text: GPT-2's only special token, or none.
void SetEnds(const params::GptSpec& gpt, Json& json) {
  const Json end = gpt.vocabulary == kGpt2Vocabulary ? Json(kGpt2EndOfText) : Json(nullptr);
  json["bos_token_id"] = end;
  json["eos_token_id"] = end;
}

// Returns a tokenizer whose tokens are bytes, in the form of a BPE without merges. Its input must
// be valid UTF-8.
Json ByteTokenizer() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < kBytes; ++byte) {
    vocabulary[LetterOfByte(static_cast<uint8_t>(byte))] = byte;
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  Json tokenizer = Json::object();
  tokenizer["version"] = "1.0";
  tokenizer["truncation"] = nullptr;
  tokenizer["padding"] = nullptr;
  tokenizer["added_tokens"] = Json::array();
  tokenizer["normalizer"] = nullptr;
  tokenizer["pre_tokenizer"] = byte_level;
  tokenizer["post_processor"] = nullptr;
  tokenizer["decoder"] = byte_level;
  tokenizer["model"] = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false},
                        {"vocab", vocabulary},
                        {"merges", Json::array()}};
  return tokenizer;
}

Json TokenizerConfig(const params::GptSpec& gpt) {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},
          {"model_max_length", gpt.context},
          {"clean_up_tokenization_spaces", false}};
}

}  // namespace

absl::StatusOr<params::ModelSpec> ModelSpecFromHuggingFace(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json config, ParseJson(text, {.max_bytes = kMaxHuggingFaceJsonBytes}));
  params::GptSpec gpt;
  ASSIGN_OR_RETURN(gpt.width, GetDimension(config, "n_embd", "hidden_size", 768));
  RETURN_IF_ERROR(CheckArchitecture(config, gpt.width));
  ASSIGN_OR_RETURN(gpt.num_layers, GetDimension(config, "n_layer", "num_hidden_layers", 12));
  ASSIGN_OR_RETURN(gpt.num_heads, GetDimension(config, "n_head", "num_attention_heads", 12));
  ASSIGN_OR_RETURN(gpt.context,
                   GetDimension(config, "n_positions", "max_position_embeddings", 1024));
  ASSIGN_OR_RETURN(gpt.vocabulary,
                   GetDimension(config, "vocab_size", "vocab_size", kGpt2Vocabulary));
  params::ModelSpec spec{kModelType, gpt};
  RETURN_IF_ERROR(params::ValidateModelSpec(spec));
  return spec;
}

bool IsConfigOfGpt2(absl::string_view text) {
  const absl::StatusOr<Json> config = ParseJson(text, {.max_bytes = kMaxHuggingFaceJsonBytes});
  if (!config.ok()) return false;
  const absl::StatusOr<std::string> type = GetString(*config, "model_type");
  return type.ok() && *type == kModelType;
}

absl::StatusOr<std::vector<std::string>> FilesOfHuggingFaceIndex(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json index, ParseJson(text, {.max_bytes = kMaxHuggingFaceJsonBytes}));
  ASSIGN_OR_RETURN(const Json* const weight_map, GetObject(index, "weight_map"));
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"weight_map\" has ", PeerText(FormatJson(file)), " for tensor ",
                       PeerText(tensor), "; it must be the name of a file in the same folder"));
    }
    names.insert(file.get<std::string>());
  }
  return std::vector<std::string>(names.begin(), names.end());
}

absl::StatusOr<std::vector<NamedText>> HuggingFaceFiles(const params::ModelSpec& spec) {
  const auto* const gpt = std::get_if<params::GptSpec>(&spec.architecture);
  if (gpt == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("model '", spec.name,
                     "' is no gpt, and Hugging Face's classes can read only a gpt of Lodestar; "
                     "export it as a safetensors file"));
  }
  Json config = ConfigOf(*gpt);
  SetEnds(*gpt, config);
  Json generation = {{"_from_model_config", true}};
  SetEnds(*gpt, generation);
  constexpr int kIndent = 2;
  std::vector<NamedText> files = {{kHuggingFaceConfig, FormatJson(config, kIndent)},
                                  {"generation_config.json", FormatJson(generation, kIndent)}};
  if (gpt->vocabulary == kBytes) {
    files.push_back({"tokenizer.json", FormatJson(ByteTokenizer(), kIndent)});
    files.push_back({"tokenizer_config.json", FormatJson(TokenizerConfig(*gpt), kIndent)});
  }
  for (NamedText& file : files) file.text += "\n";
  return files;
}

}  // namespace lodestar::checkpoints
