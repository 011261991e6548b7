// SPDX-License-Identifier: Apache-2.0

// The formula of Philox4x32-10; see common/runtime/random.h. The functions are constexpr, so that
// nvcc compiles them for GPUs also.
#pragma once

#include <cstdint>

namespace lodestar {

struct PhiloxWords {
  uint32_t word[4];
};

constexpr PhiloxWords PhiloxRounds(uint64_t key, PhiloxWords counter) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
  constexpr uint32_t kWeyl1 = 0xBB67AE85;  // square root of 3, minus 1
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  PhiloxWords x = counter;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * x.word[0];
    const uint64_t product1 = kMultiplier1 * x.word[2];
    x = {{static_cast<uint32_t>(product1 >> 32) ^ x.word[1] ^ key0, static_cast<uint32_t>(product1),
          static_cast<uint32_t>(product0 >> 32) ^ x.word[3] ^ key1,
          static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return x;
}

// Returns block `index` of the sequence `stream` of `key`.
constexpr PhiloxWords PhiloxAt(uint64_t key, uint64_t stream, uint64_t index) {
  return PhiloxRounds(key, {{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                             static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)}});
}

}  // namespace lodestar
