// `psctl generate`: text from a trained model.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace lodestar {

struct GenerateOptions {
  std::string model_path;  // a checkpoint, a file that `psctl export` wrote, or a folder of
                           // Hugging Face
  std::string tokenizer;   // of OpenTokenizer(); empty: that beside the model, or bytes
  std::string device = "auto";
  int threads = 1;
  std::string prompt;
  int64_t num_bytes = 300;
  double temperature = 0.8;
  int top_k = 0;
  uint64_t seed = 1;
};

// Writes the prompt and what follows to stdout. Errors: NotFound naming --model if nothing is
// there; those of LoadModel(), which come before any output; FailedPrecondition
// for a model that is no gpt, or one of other tokens than bytes without a tokenizer, or with one
// of far fewer tokens beside it; those of OpenTokenizer() and TextGenerator::Create().
absl::Status RunGenerate(const GenerateOptions& options);

}  // namespace lodestar
