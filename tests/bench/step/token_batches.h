// SPDX-License-Identifier: Apache-2.0

// Reads samples of a file of tokens in a fixed order, so that another program can train on the same
// samples.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace lodestar {

// Sample k has the `context` tokens from token k * context on; its targets begin one token later.
// Step i has the samples from i * batch_size on, modulo the number of samples.
class TokenBatches {
 public:
  // Reads little-endian uint16 tokens without a header. Errors: those of files; InvalidArgument
  // (the size is odd, there are fewer than context + 1 tokens, or a token is not below
  // `vocabulary`).
  static absl::StatusOr<TokenBatches> Open(const std::string& path, int64_t context,
                                           int64_t vocabulary);

  data::HostBatch Batch(int64_t step, int64_t batch_size) const;

 private:
  TokenBatches(std::vector<uint16_t> tokens, int64_t context)
      : tokens_(std::move(tokens)), context_(context) {}

  std::vector<uint16_t> tokens_;
  int64_t context_;
};

}  // namespace lodestar
