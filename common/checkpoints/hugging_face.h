// SPDX-License-Identifier: Apache-2.0

// Reads and writes the files beside the weights in a folder of Hugging Face's save_pretrained().
// Only the model GPT-2 is supported. Pure. Source: configuration_gpt2.py and modeling_gpt2.py of
// github.com/huggingface/transformers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/params/model_spec.h"

namespace lodestar::checkpoints {

inline constexpr char kHuggingFaceWeights[] = "model.safetensors";
// Name of the file that lists the weights files, if a model has several.
inline constexpr char kHuggingFaceIndex[] = "model.safetensors.index.json";
inline constexpr char kHuggingFaceConfig[] = "config.json";
// Prefix that GPT2LMHeadModel puts before the tensor names of its inner model.
inline constexpr absl::string_view kHuggingFacePrefix = "transformer.";
inline constexpr int64_t kMaxHuggingFaceJsonBytes = 64 << 20;

// Returns the model that a config.json describes. The result has no dropout, because dropout is a
// setting of the job. Accepts only a GPT-2 with the usual activation, epsilon, inner width and
// attention scale, and with a head that is tied to the token table. Errors: InvalidArgument naming
// the field, its value and the value that our models have.
absl::StatusOr<params::ModelSpec> ModelSpecFromHuggingFace(absl::string_view config);

// Returns true if the config.json describes a GPT-2. Other programs have files of that name also.
bool IsConfigOfGpt2(absl::string_view config);

// Returns the names of the weights files, ascending. Errors: InvalidArgument if the text is not an
// index, or a name leads out of the folder.
absl::StatusOr<std::vector<std::string>> FilesOfHuggingFaceIndex(absl::string_view index);

struct NamedText {
  std::string name;  // name of a file in the folder
  std::string text;
};

// Returns all files but the weights: config.json, generation_config.json and, if tokens are bytes,
// tokenizer.json and tokenizer_config.json. Errors: InvalidArgument if the model is not a gpt.
absl::StatusOr<std::vector<NamedText>> HuggingFaceFiles(const params::ModelSpec& spec);

}  // namespace lodestar::checkpoints
