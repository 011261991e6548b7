// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/random.h"

#include <cmath>
#include <numbers>

#include "common/runtime/philox.h"

namespace lodestar {

PhiloxBlock Philox(uint64_t key, const PhiloxBlock& counter) {
  const PhiloxWords words = PhiloxRounds(key, {{counter[0], counter[1], counter[2], counter[3]}});
  return {words.word[0], words.word[1], words.word[2], words.word[3]};
}

PhiloxBlock Philox(uint64_t key, uint64_t stream, uint64_t index) {
  const PhiloxWords words = PhiloxAt(key, stream, index);
  return {words.word[0], words.word[1], words.word[2], words.word[3]};
}

double UniformFrom(uint32_t bits) { return (bits + 0.5) * 0x1p-32; }

std::array<double, 4> NormalsFrom(const PhiloxBlock& block) {
  std::array<double, 4> normals;
  for (int pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2.0 * std::log(UniformFrom(block[2 * pair])));
    const double angle = 2.0 * std::numbers::pi * UniformFrom(block[2 * pair + 1]);
    normals[2 * pair] = radius * std::cos(angle);
    normals[2 * pair + 1] = radius * std::sin(angle);
  }
  return normals;
}

}  // namespace lodestar
