// The files beside the weights of a GPT-2 in a folder as Hugging Face's save_pretrained() writes
// it: what they say of a model, and what they say of ours. Pure. Source: configuration_gpt2.py and
// modeling_gpt2.py of github.com/huggingface/transformers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/params/model_spec.h"

namespace lodestar {

inline constexpr char kHuggingFaceWeights[] = "model.safetensors";
inline constexpr char kHuggingFaceIndex[] = "model.safetensors.index.json";  // of several files
inline constexpr char kHuggingFaceConfig[] = "config.json";
// What GPT2LMHeadModel has before the names of the tensors of the model within.
inline constexpr absl::string_view kHuggingFacePrefix = "transformer.";
inline constexpr int64_t kMaxHuggingFaceJsonBytes = 64 << 20;

// The model that a config.json means, without dropout, which is a setting of a job. Errors:
// InvalidArgument naming the field, what it says and what our models are: another architecture than
// GPT-2's, another activation, epsilon, inner width or scale of the attention, an untied head.
absl::StatusOr<ModelSpec> ModelSpecFromHuggingFace(absl::string_view config);

// Whether a config.json is of a GPT-2, or of anything else that has such a file.
bool IsConfigOfGpt2(absl::string_view config);

// Names of the weights' files, ascending. Errors: InvalidArgument for what is no index, and for
// names that lead out of the folder.
absl::StatusOr<std::vector<std::string>> FilesOfHuggingFaceIndex(absl::string_view index);

struct NamedText {
  std::string name;  // of a file in the folder
  std::string text;
};

// All files but the weights: config.json, generation_config.json and, where tokens are bytes,
// tokenizer.json and tokenizer_config.json. Errors: InvalidArgument for a model that is no gpt.
absl::StatusOr<std::vector<NamedText>> HuggingFaceFiles(const ModelSpec& spec);

}  // namespace lodestar
