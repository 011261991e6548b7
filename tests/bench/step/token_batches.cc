// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/step/token_batches.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"

namespace lodestar {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;

}  // namespace

absl::StatusOr<TokenBatches> TokenBatches::Open(const std::string& path, int64_t context,
                                                int64_t vocabulary) {
  ASSIGN_OR_RETURN(const std::string bytes,
                   storage::FileSystem::Real().ReadWholeFile(path, kMostBytes));
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(uint16_t));
  if (bytes.size() % sizeof(uint16_t) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tokens=", path, " has ", bytes.size(),
                     " bytes, an odd number; each token takes two bytes: write uint16 tokens"));
  }
  if (count <= context) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tokens=", path, " has ", count, " tokens; give at least ", context + 1));
  }
  std::vector<uint16_t> tokens(count);
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[i] < vocabulary) continue;
    return absl::InvalidArgumentError(absl::StrCat("--tokens=", path, ": token ", i, " is ",
                                                   tokens[i], ", the vocabulary has ", vocabulary));
  }
  return TokenBatches(std::move(tokens), context);
}

data::HostBatch TokenBatches::Batch(int64_t step, int64_t batch_size) const {
  const int64_t num_samples = (static_cast<int64_t>(tokens_.size()) - 1) / context_;
  data::HostBatch batch;
  batch.num_samples = batch_size;
  batch.first_position = step * batch_size;
  for (int64_t i = 0; i < batch_size; ++i) {
    const auto begin = tokens_.begin() + (step * batch_size + i) % num_samples * context_;
    batch.tokens.insert(batch.tokens.end(), begin, begin + context_);
    batch.targets.insert(batch.targets.end(), begin + 1, begin + 1 + context_);
  }
  return batch;
}

}  // namespace lodestar
