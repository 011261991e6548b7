// SPDX-License-Identifier: Apache-2.0

// `psctl generate` writes text with a trained model.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace lodestar::psctl {

struct GenerateOptions {
  // A checkpoint, a file that `psctl export` wrote, or a folder of Hugging Face.
  std::string model_path;
  // Path of the tokenizer, as for OpenTokenizer(). Empty means the tokenizer in the model's folder.
  // If there is none, the tokens of the model must be bytes.
  std::string tokenizer;
  std::string device = "auto";
  int threads = 1;
  std::string prompt;
  int64_t num_bytes = 300;
  double temperature = 0.8;
  int top_k = 0;
  uint64_t seed = 1;
};

// Writes the prompt and the generated text to stdout. Errors:
// - NotFound naming --model (nothing is there).
// - Those of LoadModel(). They come before any output.
// - FailedPrecondition: the model is not a gpt.
// - FailedPrecondition: the model's tokens are not bytes and there is no tokenizer.
// - FailedPrecondition: the tokenizer in the model's folder has far fewer tokens than the model.
// - Those of OpenTokenizer() and TextGenerator::Create().
absl::Status RunGenerate(const GenerateOptions& options);

}  // namespace lodestar::psctl
