// TextGenerator continues a text by one token at a time, each drawn from the model's distribution.
// The same model, prompt and config give the same text: the draw of token i depends on (seed, i)
// only.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/model/next_token_model.h"
#include "worker/model/tokenizer.h"

namespace lodestar::model {

// Draws an index with probability softmax(logits / temperature) among the `top_k` largest logits;
// `uniform` in (0, 1) decides. top_k 0 means all logits, and temperature 0 means the largest logit.
// The lowest index wins among equals. `logits` must not be empty.
int32_t DrawToken(absl::Span<const float> logits, double temperature, int top_k, double uniform);

class TextGenerator {
 public:
  struct Config {
    double temperature = 1.0;  // >= 0; below 1 sharpens, 0 always takes the likeliest
    int top_k = 0;             // >= 0; 0 means no limit
    uint64_t seed = 1;
  };

  // Both must outlive the generator. Errors: InvalidArgument for a config out of range, or a
  // tokenizer with more tokens than the model has.
  static absl::StatusOr<TextGenerator> Create(NextTokenModel* model, const Tokenizer* tokenizer,
                                              const Config& config);

  // Calls emit() with the bytes of each new token until there are num_bytes or the text ends. The
  // last token may exceed num_bytes. What lies further back than the model's context is forgotten.
  // Errors: InvalidArgument for an empty prompt where the tokenizer knows no beginning;
  // FailedPrecondition naming the first logit that is not finite. If the model or emit() fails,
  // generation ends with that error.
  absl::Status Generate(absl::string_view prompt, int64_t num_bytes,
                        absl::FunctionRef<absl::Status(absl::string_view)> emit) const;

 private:
  TextGenerator(NextTokenModel* model, const Tokenizer* tokenizer, const Config& config)
      : model_(model), tokenizer_(tokenizer), config_(config) {}

  NextTokenModel* const model_;
  const Tokenizer* const tokenizer_;
  const Config config_;
};

}  // namespace lodestar::model
