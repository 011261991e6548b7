// SPDX-License-Identifier: Apache-2.0

#include "common/params/initial_weights.h"

#include <algorithm>
#include <array>

#include "common/runtime/check.h"
#include "common/runtime/random.h"

namespace lodestar::params {
namespace {

constexpr int64_t kLanes = 4;  // values per block of the generator

// Returns the 64-bit FNV-1a hash of the name.
uint64_t StreamOf(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// Fills `out` with the elements from `begin` on. Block b of the random generator gives the elements
// 4 * b to 4 * b + 3. `values` turns a block into these four values.
template <typename Values>
void FillFromBlocks(uint64_t seed, uint64_t stream, int64_t begin, absl::Span<float> out,
                    Values values) {
  int64_t i = begin;
  const int64_t end = begin + static_cast<int64_t>(out.size());
  while (i < end) {
    const std::array<double, 4> four = values(Philox(seed, stream, i / kLanes));
    const int64_t block_end = std::min((i / kLanes + 1) * kLanes, end);
    for (; i < block_end; ++i) out[i - begin] = static_cast<float>(four[i % kLanes]);
  }
}

}  // namespace

void FillInitial(const TensorSpec& tensor, uint64_t seed, int64_t begin_in_tensor,
                 absl::Span<float> out) {
  LODESTAR_CHECK(begin_in_tensor >= 0 &&
                 begin_in_tensor + static_cast<int64_t>(out.size()) <= tensor.num_elements())
      << tensor.name << " has no elements " << begin_in_tensor << " to "
      << begin_in_tensor + static_cast<int64_t>(out.size());
  const double scale = tensor.initializer.scale;
  switch (tensor.initializer.kind) {
    case InitializerKind::kZeros:
      std::fill(out.begin(), out.end(), 0.0f);
      return;
    case InitializerKind::kOnes:
      std::fill(out.begin(), out.end(), 1.0f);
      return;
    case InitializerKind::kNormal:
      FillFromBlocks(seed, StreamOf(tensor.name), begin_in_tensor, out,
                     [scale](const PhiloxBlock& block) {
                       std::array<double, 4> values = NormalsFrom(block);
                       for (double& value : values) value *= scale;
                       return values;
                     });
      return;
    case InitializerKind::kUniform:
      FillFromBlocks(seed, StreamOf(tensor.name), begin_in_tensor, out,
                     [scale](const PhiloxBlock& block) {
                       std::array<double, 4> values;
                       for (int i = 0; i < 4; ++i) {
                         values[i] = scale * (2.0 * UniformFrom(block[i]) - 1.0);
                       }
                       return values;
                     });
      return;
  }
}

void FillInitialRange(const Layout& layout, uint64_t seed, ElementRange range,
                      absl::Span<float> out) {
  LODESTAR_CHECK(range.size() == static_cast<int64_t>(out.size()));
  for (const TensorSpec& tensor : layout.tensors()) {
    const int64_t begin = std::max(range.begin, tensor.offset);
    const int64_t end = std::min(range.end, tensor.offset + tensor.num_elements());
    if (begin >= end) continue;
    FillInitial(tensor, seed, begin - tensor.offset, out.subspan(begin - range.begin, end - begin));
  }
}

}  // namespace lodestar::params
