// SPDX-License-Identifier: Apache-2.0

#include "tests/bench/data_path/parts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/check.h"
#include "kernels/buf.h"
#include "kernels/operation_arguments.h"
#include "kernels/vectors/optimizer_step.h"
#include "kernels/vectors/reduce.h"
#include "proto/bulk_options.h"

namespace lodestar {
namespace {

constexpr size_t kChunkElements = wire::kChunkBytes / sizeof(float);

// A chunk of each vector.
struct Chunk {
  absl::Span<const float> gradient;
  absl::Span<float> weights;
  absl::Span<float> new_weights;

  size_t num_bytes() const { return gradient.size() * sizeof(float); }
  int64_t num_elements() const { return static_cast<int64_t>(gradient.size()); }
};

class PartsTimer {
 public:
  PartsTimer(absl::Span<const float> gradient, absl::Span<float> weights)
      : gradient_(gradient), weights_(weights), new_weights_(gradient.size(), 0.0f) {
    LODESTAR_CHECK(weights.size() == gradient.size()) << weights.size();
  }

  // Times `part`, which returns true if its result is correct.
  void Time(absl::string_view name, absl::FunctionRef<bool(const Chunk&)> part) {
    const absl::Time start = absl::Now();
    for (size_t begin = 0; begin < gradient_.size(); begin += kChunkElements) {
      LODESTAR_CHECK(
          part({gradient_.subspan(begin, kChunkElements), weights_.subspan(begin, kChunkElements),
                absl::MakeSpan(new_weights_).subspan(begin, kChunkElements)}))
          << name << ", chunk from element " << begin;
    }
    const double gigabytes = static_cast<double>(gradient_.size() * sizeof(float)) * 1e-9;
    times_.push_back({name, absl::ToDoubleSeconds(absl::Now() - start) / gigabytes});
  }

  const std::vector<PartTime>& times() const { return times_; }

 private:
  const absl::Span<const float> gradient_;
  const absl::Span<float> weights_;
  std::vector<float> new_weights_;
  std::vector<PartTime> times_;
};

}  // namespace

std::vector<PartTime> TimeParts(absl::Span<const float> gradient, absl::Span<float> weights) {
  PartsTimer timer(gradient, weights);
  uint32_t read = 0;
  timer.Time("checksum", [&](const Chunk& chunk) {
    read = crc32c::Crc32c(chunk.gradient.data(), chunk.num_bytes(), read);
    return true;
  });
  uint32_t copied = 0;
  timer.Time("checksum_with_copy", [&](const Chunk& chunk) {
    copied =
        crc32c::Crc32cCopy(chunk.weights.data(), chunk.gradient.data(), chunk.num_bytes(), copied);
    return true;
  });
  LODESTAR_CHECK(read == copied) << read << " " << copied;
  timer.Time("look", [](const Chunk& chunk) {
    double square_sum = 0.0;
    return vectors::AllBelow(chunk.gradient.data(), std::numeric_limits<float>::infinity(),
                             chunk.num_elements(), &square_sum) &&
           std::isfinite(square_sum);
  });
  timer.Time("sum", [](const Chunk& chunk) {
    constexpr float kScale = 0.5f;
    vectors::AccumulateScaled(chunk.weights.data(), chunk.gradient.data(), kScale,
                              chunk.num_elements(), kernels::Accumulate::kAdd);
    return true;
  });
  timer.Time("update", [](const Chunk& chunk) {
    constexpr kernels::MomentumStep kStep = {
        .learning_rate = 0.5, .momentum = 0.0, .weight_decay = 0.0};
    return vectors::SgdMomentumStep(chunk.new_weights, chunk.weights, {}, chunk.gradient, kStep);
  });
  timer.Time("copy", [](const Chunk& chunk) {
    std::memcpy(chunk.weights.data(), chunk.gradient.data(), chunk.num_bytes());
    return true;
  });
  return timer.times();
}

}  // namespace lodestar
