// SPDX-License-Identifier: Apache-2.0

#include "worker/data/content_hash.h"

#include <cstddef>
#include <cstring>

#include "absl/strings/str_format.h"

namespace lodestar::data {
namespace {

constexpr int kLanes = 4;
// Hexadecimal digits of the fractions of sqrt(2), sqrt(3), sqrt(5) and sqrt(7). The last digit is
// made odd, because multiplying by an odd number is a bijection of 64-bit words.
constexpr uint64_t kMultipliers[kLanes] = {0x6a09e667f3bcc909u, 0xbb67ae8584caa73bu,
                                           0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u};
// Multiplication carries a changed bit only to higher bits. So each word is multiplied twice, with
// a rotation between. Then a change of one bit cannot be undone by one bit of the next word.
constexpr uint64_t kWordMultiplier = 0x9e3779b97f4a7c15u;

uint64_t RotateLeft(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

uint64_t Avalanche(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
  return x ^ (x >> 33);
}

}  // namespace

void ContentHash::AddNumber(uint64_t number) {
  state_ = Avalanche(RotateLeft(state_, 17) ^ Avalanche(number + kMultipliers[0]));
}

void ContentHash::AddText(absl::string_view text) {
  AddBytes(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

ContentHash::Pieces::Pieces() {
  for (int lane = 0; lane < kLanes; ++lane) lanes_[lane] = kMultipliers[kLanes - 1 - lane];
}

void ContentHash::Pieces::Add(absl::Span<const uint8_t> piece) {
  // Four lanes are independent, so the processor can multiply them at the same time. A local copy
  // of the lanes stays in registers.
  std::array<uint64_t, kLanes> lanes = lanes_;
  constexpr size_t kStride = kLanes * sizeof(uint64_t);
  for (size_t at = 0; at < piece.size(); at += kStride) {
    uint64_t words[kLanes] = {};
    const size_t left = piece.size() - at;
    std::memcpy(words, piece.data() + at, left < kStride ? left : kStride);
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t mixed = lanes[lane] + words[lane] * kWordMultiplier;
      lanes[lane] = RotateLeft(mixed, 31) * kMultipliers[lane];
    }
  }
  lanes_ = lanes;
  num_bytes_ += piece.size();
}

void ContentHash::AddBytes(absl::Span<const uint8_t> bytes) {
  Pieces whole;
  whole.Add(bytes);
  AddBytes(whole);
}

void ContentHash::AddBytes(const Pieces& bytes) {
  for (const uint64_t lane : bytes.lanes_) AddNumber(lane);
  AddNumber(bytes.num_bytes_);
}

std::string ContentHash::Hex() const { return absl::StrFormat("%016x", Avalanche(state_)); }

}  // namespace lodestar::data
