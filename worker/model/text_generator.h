// Continues a text with a model over bytes: one byte at a time, each drawn from the model's
// distribution. The same model, prompt and config give the same bytes: the draw of byte i depends
// on (seed, i) only.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/model/next_token_model.h"

namespace lodestar {

// Draws an index with probability softmax(logits / temperature) among the `top_k` largest (0: all);
// `uniform` in (0, 1) decides. Temperature 0: the largest. The lowest index wins among equals.
// `logits` must not be empty.
int32_t DrawToken(absl::Span<const float> logits, double temperature, int top_k, double uniform);

class TextGenerator {
 public:
  struct Config {
    double temperature = 1.0;  // >= 0; below 1 sharpens, 0 always takes the likeliest
    int top_k = 0;             // >= 0; 0: no limit
    uint64_t seed = 1;
  };

  // `model` must outlive the generator. Errors: InvalidArgument for a config out of range or a
  // model whose vocabulary is not the 256 bytes.
  static absl::StatusOr<TextGenerator> Create(NextTokenModel* model, const Config& config);

  // Calls emit() for each of num_bytes new bytes. An empty prompt continues a line break. What is
  // more than the model's context back is forgotten. Errors: those of the model and of emit(),
  // which end it.
  absl::Status Generate(absl::string_view prompt, int64_t num_bytes,
                        absl::FunctionRef<absl::Status(char)> emit) const;

 private:
  TextGenerator(NextTokenModel* model, const Config& config) : model_(model), config_(config) {}

  NextTokenModel* const model_;
  const Config config_;
};

}  // namespace lodestar
