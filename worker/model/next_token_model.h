// What text generation asks of a model.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lodestar::model {

class NextTokenModel {
 public:
  virtual ~NextTokenModel() = default;
  virtual int64_t vocabulary() const = 0;
  // Tokens that the model looks back on.
  virtual int64_t context() const = 0;
  // Logits [vocabulary] of the token after `tokens`, of which the last context() count.
  // Errors: InvalidArgument for no tokens, or tokens outside the vocabulary; those of the device.
  virtual absl::Status NextTokenLogits(absl::Span<const int32_t> tokens,
                                       std::vector<float>* logits) = 0;
};

}  // namespace lodestar::model
