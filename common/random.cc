#include "common/random.h"

#include <cmath>
#include <numbers>

namespace lodestar {

PhiloxBlock Philox(uint64_t key, const PhiloxBlock& counter) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
  constexpr uint32_t kWeyl1 = 0xBB67AE85;  // square root of 3, less 1
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock block = counter;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * block[0];
    const uint64_t product1 = kMultiplier1 * block[2];
    block = {
        static_cast<uint32_t>(product1 >> 32) ^ block[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ block[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return block;
}

PhiloxBlock Philox(uint64_t key, uint64_t stream, uint64_t index) {
  return Philox(key,
                PhiloxBlock{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                            static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)});
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
