// SPDX-License-Identifier: Apache-2.0

#include "worker/data/sample_order.h"

#include <cassert>

namespace lodestar::data {
namespace {

// Number of steps of the Feistel network. Four steps already give a permutation that simple
// statistics cannot tell from a random one (Luby and Rackoff 1988). Tiny data sets need two more
// steps, which cost a few nanoseconds.
constexpr int kFeistelSteps = 6;

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014). It is a bijection of 64-bit words in which
// every input bit affects all output bits.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Returns the smallest w >= 1 with 4^w >= n. The network permutes numbers of 2w bits. It cuts each
// number into two halves of w bits.
int HalfWidthBits(uint64_t n) {
  int half_bits = 1;
  while (half_bits < 31 && (uint64_t{1} << (2 * half_bits)) < n) ++half_bits;
  return half_bits;
}

uint64_t Feistel(uint64_t value, uint64_t key, int half_bits) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (int step = 0; step < kFeistelSteps; ++step) {
    const uint64_t next = left ^ (Mix(key ^ Mix(right * kFeistelSteps + step)) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits) | right;
}

}  // namespace

SampleOrder::SampleOrder(uint64_t seed, int64_t num_samples, bool is_shuffled)
    : seed_(seed), num_samples_(num_samples), is_shuffled_(is_shuffled) {
  assert(num_samples >= 1);
}

SampleRef SampleOrder::At(int64_t position) const {
  const uint64_t n = static_cast<uint64_t>(num_samples_);
  SampleRef ref;
  ref.epoch = position / num_samples_;
  if (!is_shuffled_) {
    ref.index = position % num_samples_;
    return ref;
  }
  const uint64_t key = Mix(Mix(seed_) ^ static_cast<uint64_t>(ref.epoch));
  const int half_bits = HalfWidthBits(n);
  // The network permutes more than [0, n). Applying it until the value is in [0, n) again gives a
  // permutation of [0, n). 4^w is less than 4 n, so this takes fewer than 4 applications on
  // average.
  uint64_t value = static_cast<uint64_t>(position % num_samples_);
  do {
    value = Feistel(value, key, half_bits);
  } while (value >= n);
  ref.index = static_cast<int64_t>(value);
  return ref;
}

}  // namespace lodestar::data
