// SPDX-License-Identifier: Apache-2.0

#include "worker/model/text_generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/runtime/random.h"
#include "common/runtime/status_macros.h"

namespace lodestar::model {
namespace {

// Selects the random numbers of draws, so that they differ from those of other code with the same
// seed.
constexpr uint64_t kDrawStream = 0x67656e6572617465;

// Returns the indices of the `count` largest logits, largest first. Among equal logits the lower
// index comes first.
std::vector<int32_t> LargestFirst(absl::Span<const float> logits, size_t count) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [logits](int32_t a, int32_t b) {
                      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                    });
  order.resize(count);
  return order;
}

// Checks that all logits are finite. A draw with NaN would be meaningless, because comparisons with
// NaN are false.
absl::Status CheckFinite(absl::Span<const float> logits, int64_t num_generated) {
  const auto wrong =
      std::find_if(logits.begin(), logits.end(), [](float logit) { return !std::isfinite(logit); });
  if (wrong == logits.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("after ", num_generated, " generated tokens, the logit of token ",
                   wrong - logits.begin(), " of ", logits.size(), " is ", *wrong,
                   ", which is not a finite number. The model's training had diverged; give an "
                   "earlier checkpoint"));
}

}  // namespace

int32_t DrawToken(absl::Span<const float> logits, double temperature, int top_k, double uniform) {
  const bool has_limit = top_k > 0 && top_k < static_cast<int64_t>(logits.size());
  const size_t count = temperature == 0.0 ? 1 : has_limit ? top_k : logits.size();
  const std::vector<int32_t> candidates = LargestFirst(logits, count);
  std::vector<double> cumulative;
  cumulative.reserve(candidates.size());
  double sum = 0.0;
  for (const int32_t candidate : candidates) {
    const double below_largest = static_cast<double>(logits[candidate]) - logits[candidates[0]];
    sum += below_largest == 0.0 ? 1.0 : std::exp(below_largest / temperature);
    cumulative.push_back(sum);
  }
  const auto drawn = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * sum);
  return candidates[std::min<size_t>(drawn - cumulative.begin(), candidates.size() - 1)];
}

absl::StatusOr<TextGenerator> TextGenerator::Create(NextTokenModel* model,
                                                    const Tokenizer* tokenizer,
                                                    const Config& config) {
  if (!(config.temperature >= 0.0) || std::isinf(config.temperature)) {
    return absl::InvalidArgumentError(absl::StrCat("temperature is ", config.temperature,
                                                   "; it must be a finite number of at least 0"));
  }
  if (config.top_k < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_k is ", config.top_k, "; it must be at least 0, and 0 means no limit"));
  }
  if (tokenizer->vocabulary() > model->vocabulary()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer has ", tokenizer->vocabulary(), " tokens, but the model has ",
                     model->vocabulary(), "; give the tokenizer with which the model was trained"));
  }
  return TextGenerator(model, tokenizer, config);
}

absl::Status TextGenerator::Generate(
    absl::string_view prompt, int64_t num_bytes,
    absl::FunctionRef<absl::Status(absl::string_view)> emit) const {
  std::vector<int32_t> tokens =
      prompt.empty() ? tokenizer_->Beginning() : tokenizer_->Encode(prompt);
  if (tokens.empty()) {
    return absl::InvalidArgumentError(
        "the tokenizer has no token for the beginning of a text; give a prompt");
  }
  std::vector<float> logits;
  int64_t bytes_left = num_bytes;
  for (int64_t i = 0; bytes_left > 0; ++i) {
    RETURN_IF_ERROR(model_->NextTokenLogits(tokens, &logits));
    RETURN_IF_ERROR(CheckFinite(logits, i));
    const double uniform = UniformFrom(Philox(config_.seed, kDrawStream, i)[0]);
    tokens.push_back(DrawToken(logits, config_.temperature, config_.top_k, uniform));
    if (tokens.back() == tokenizer_->end_of_text()) break;
    const absl::string_view bytes = tokenizer_->BytesOf(tokens.back());
    RETURN_IF_ERROR(emit(bytes));
    // A token without bytes counts as one byte, so that the loop ends. A model's vocabulary may be
    // larger than the tokenizer's, and its additional tokens have no bytes.
    bytes_left -= std::max<int64_t>(1, static_cast<int64_t>(bytes.size()));
  }
  return absl::OkStatus();
}

}  // namespace lodestar::model
