// SPDX-License-Identifier: Apache-2.0

// TextGenerator continues a text token by token. Each token is drawn from the model's distribution.
// The same model, prompt and config give the same text, because the draw of token i depends only on
// (seed, i).
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

// Draws an index among the `top_k` largest logits, with probability softmax(logits / temperature).
// `uniform` in (0, 1) determines the draw. If top_k is 0, all logits are used. If the temperature
// is 0, the result is the largest logit, or the first of several equal ones. `logits` must not be
// empty.
int32_t DrawToken(absl::Span<const float> logits, double temperature, int top_k, double uniform);

class TextGenerator {
 public:
  struct Config {
    // Temperature, at least 0. Values below 1 make likely tokens even more likely. At 0 the most
    // likely token is always chosen.
    double temperature = 1.0;
    int top_k = 0;  // At least 0. 0 means no limit.
    uint64_t seed = 1;
  };

  // Makes a generator. `model` and `tokenizer` must outlive it. Errors: InvalidArgument for a
  // config out of range, or a tokenizer with more tokens than the model has.
  static absl::StatusOr<TextGenerator> Create(NextTokenModel* model, const Tokenizer* tokenizer,
                                              const Config& config);

  // Calls emit() with the bytes of each new token, until there are num_bytes bytes or the text
  // ends. The last token may exceed num_bytes. Only the last tokens that fit the model's context
  // are used. Errors: InvalidArgument for an empty prompt if the tokenizer has no Beginning();
  // FailedPrecondition naming the first logit that is not finite; those of the model and of emit().
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
