// SPDX-License-Identifier: Apache-2.0

// NextTokenModel is the interface of a model for text generation.
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
  // Returns the maximum number of tokens that the model reads.
  virtual int64_t context() const = 0;
  // Sets *logits to the logits [vocabulary] of the token after `tokens`. Only the last context()
  // tokens are read. Errors: InvalidArgument for no tokens, or tokens outside the vocabulary; those
  // of the device.
  virtual absl::Status NextTokenLogits(absl::Span<const int32_t> tokens,
                                       std::vector<float>* logits) = 0;
};

}  // namespace lodestar::model
