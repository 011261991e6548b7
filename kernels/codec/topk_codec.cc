// SPDX-License-Identifier: Apache-2.0

#include "kernels/codec/topk_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/codec/codec_loops.h"
#include "kernels/vectors/reduce.h"

namespace lodestar::codec {
namespace {

constexpr uint32_t kMagnitude = 0x7FFFFFFF;
constexpr uint32_t kInfinity = 0x7F800000;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float MagnitudeOf(float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & kMagnitude);
}

float FromBf16(codec::Code16 code) { return std::bit_cast<float>(uint32_t{code} << 16); }
codec::Code16 ToBf16(float value) {
  codec::Code16 code = 0;
  codec::BestLoops().to_bf16(&value, &code, 1);
  return code;
}

// The magnitudes that a code can have. Level i stands for the magnitude low + i * step.
struct Levels {
  float low = 0.0f;
  float step = 0.0f;

  bool are_finite() const { return std::isfinite(low) && std::isfinite(step); }
  // The product is exact, because `level` has at most three bits and `step` has eight significant
  // bits.
  float MagnitudeAt(int level) const { return low + static_cast<float>(level) * step; }
};

// Reads and writes the encoded bytes of one block of n elements.
class BlockBytes {
 public:
  BlockBytes(params::Encoding encoding, int64_t n)
      : bits_(encoding.topk_bits()), kept_(std::min<int64_t>(encoding.topk(), n)) {}

  int64_t kept() const { return kept_; }
  int sign_bit() const { return 1 << (bits_ - 1); }
  int largest_level() const { return sign_bit() - 1; }

  static Levels ReadLevels(const std::byte* block) {
    codec::Code16 codes[2];
    std::memcpy(codes, block, sizeof(codes));
    return {FromBf16(codes[0]), FromBf16(codes[1])};
  }
  static int PlaceAt(const std::byte* block, int64_t i) {
    const std::byte* const pair = block + params::TopKBlockBytes::kLevels + 3 * (i / 2);
    const auto byte = [pair](int at) { return std::to_integer<int>(pair[at]); };
    return i % 2 == 0 ? byte(0) | (byte(1) & 0xF) << 8 : byte(1) >> 4 | byte(2) << 4;
  }
  int CodeAt(const std::byte* block, int64_t i) const {
    const std::byte* const codes =
        block + params::TopKBlockBytes::kLevels + params::TopKBlockBytes::Places(kept_);
    const int64_t bit = bits_ * i;
    return std::to_integer<int>(codes[bit / 8]) >> (bit % 8) & ((1 << bits_) - 1);
  }

  void Write(const Levels& levels, const uint16_t* places, const uint8_t* codes,
             std::byte* block) const {
    const codec::Code16 words[2] = {ToBf16(levels.low), ToBf16(levels.step)};
    std::memcpy(block, words, sizeof(words));
    std::byte* to = block + params::TopKBlockBytes::kLevels;
    for (int64_t i = 0; i < kept_; i += 2) {
      const int second = i + 1 < kept_ ? places[i + 1] : 0;
      *to++ = static_cast<std::byte>(places[i]);
      *to++ = static_cast<std::byte>(places[i] >> 8 | second << 4);
      if (i + 1 < kept_) *to++ = static_cast<std::byte>(second >> 4);
    }
    const int per_byte = 8 / bits_;
    for (int64_t i = 0; i < kept_; i += per_byte) {
      int packed = 0;
      for (int64_t j = i; j < std::min(i + per_byte, kept_); ++j) {
        packed |= codes[j] << (bits_ * (j - i));
      }
      *to++ = static_cast<std::byte>(packed);
    }
  }

 private:
  const int bits_;
  const int64_t kept_;
};

// The kept elements of one block, which are the elements that are sent.
struct KeptElements {
  int64_t count = 0;
  uint16_t places[params::kMaxTopK];
  float values[params::kMaxTopK];
};

void ReadKept(const BlockBytes& bytes, const std::byte* block, int64_t n, KeptElements* kept) {
  constexpr int kMaxCodes = 16;
  float value_of[kMaxCodes];
  const Levels levels = BlockBytes::ReadLevels(block);
  for (int level = 0; level <= bytes.largest_level(); ++level) {
    value_of[level] = levels.MagnitudeAt(level);
    value_of[level | bytes.sign_bit()] = -value_of[level];
  }
  kept->count = 0;
  for (int64_t i = 0; i < bytes.kept(); ++i) {
    const int place = BlockBytes::PlaceAt(block, i);
    // Skips positions beyond the end of the block. FirstMalformed() reports such positions, but the
    // caller may not have called it.
    if (place >= n) continue;
    kept->places[kept->count] = static_cast<uint16_t>(place);
    kept->values[kept->count++] = value_of[bytes.CodeAt(block, i)];
  }
}

// Calls spoilt(begin, size) for each block whose levels are not finite. Calls fine(begin, size,
// kept) for each other block.
template <typename Spoilt, typename Fine>
void ForEachBlock(params::Encoding encoding, const std::byte* encoded, int64_t n, Spoilt spoilt,
                  Fine fine) {
  KeptElements kept;
  for (int64_t begin = 0; begin < n; begin += params::kTopKBlock) {
    const int64_t size = std::min(params::kTopKBlock, n - begin);
    if (BlockBytes::ReadLevels(encoded).are_finite()) {
      ReadKept(BlockBytes(encoding, size), encoded, size, &kept);
      fine(begin, size, kept);
    } else {
      spoilt(begin, size);
    }
    encoded += params::EncodedBytes(encoding, size);
  }
}

// Sets `places` to the positions of the `kept` elements of largest magnitude, in ascending order.
// If elements have equal magnitudes, those with the lower positions are kept. `largest` has the
// bits of the largest magnitude of all n elements.
void Select(const float* values, int64_t n, int64_t kept, uint32_t largest, uint16_t* places) {
  const codec::Loops& loops = codec::BestLoops();
  // Finds the largest threshold such that at least `kept` magnitudes are not below it. Determines
  // its bits from the highest to the lowest. Magnitudes have the same order as their bits.
  uint32_t threshold = 0;
  int64_t reaching = n;
  for (int bit = 30; bit >= 0 && reaching != kept; --bit) {
    const uint32_t candidate = threshold | uint32_t{1} << bit;
    if (candidate > largest) continue;
    const int64_t count = loops.count_at_least(values, candidate, n);
    if (count < kept) continue;
    threshold = candidate;
    reaching = count;
  }
  // If more than `kept` magnitudes are at or above the threshold, the smallest kept magnitude
  // equals the threshold. Of the elements equal to it, only the first ones are kept.
  const int64_t above = reaching == kept ? kept : loops.count_at_least(values, threshold + 1, n);
  int64_t ties = reaching == kept ? 0 : kept - above;
  uint8_t marks[params::kTopKBlock];
  loops.mark_at_least(values, threshold, marks, n);
  std::fill(marks + n, marks + (n + 7) / 8 * 8, uint8_t{0});
  for (int64_t begin = 0; begin < n; begin += 8) {
    uint64_t marked = 0;
    std::memcpy(&marked, marks + begin, sizeof(marked));
    for (; marked != 0; marked &= marked - 1) {
      const int64_t place = begin + std::countr_zero(marked) / 8;
      if (reaching != kept && (std::bit_cast<uint32_t>(values[place]) & kMagnitude) == threshold &&
          ties-- <= 0) {
        continue;
      }
      *places++ = static_cast<uint16_t>(place);
    }
  }
}

// Splits the magnitudes into smaller and larger ones by k-means. Returns {low, high}, the means of
// the two groups. Computes with integers in units of largest / 2^20.
Levels TwoMeans(const float* magnitudes, int64_t kept, float largest) {
  constexpr float kParts = 0x1p20f;
  constexpr int kPasses = 4;
  uint32_t parts[params::kMaxTopK];
  uint32_t total = 0;
  for (int64_t i = 0; i < kept; ++i) {
    parts[i] = static_cast<uint32_t>(magnitudes[i] / largest * kParts);
    total += parts[i];
  }
  uint32_t split = total / static_cast<uint32_t>(kept);
  uint32_t low = split;
  uint32_t high = split;
  for (int pass = 0; pass < kPasses; ++pass) {
    uint32_t count = 0;
    uint32_t sum = 0;
    for (int64_t i = 0; i < kept; ++i) {
      count += parts[i] > split ? 1 : 0;
      sum += parts[i] > split ? parts[i] : 0;
    }
    if (count == 0) break;  // all magnitudes are equal
    high = sum / count;
    low = (total - sum) / (static_cast<uint32_t>(kept) - count);
    split = (low + high) / 2;
  }
  const auto whole = [largest](uint32_t part) {
    return static_cast<float>(static_cast<int32_t>(part)) * (1.0f / kParts) * largest;
  };
  return {whole(low), whole(high)};
}

// Returns evenly spaced levels from low to high. `range` is {low, high}, so range.step is not a
// step here.
Levels LevelsFrom(const Levels& range, int largest_level) {
  const float low = FromBf16(ToBf16(range.low));
  const auto steps = static_cast<float>(largest_level);
  // `low` was rounded to bf16, and may now be above the highest level.
  const float exact = range.step > low ? (range.step - low) / steps : 0.0f;
  const uint32_t step = uint32_t{ToBf16(exact)} << 16;
  const Levels levels = {low, std::bit_cast<float>(step)};
  if (std::isfinite(levels.MagnitudeAt(largest_level))) return levels;
  return {low, std::bit_cast<float>(step - 0x10000)};
}

// Returns the number of the level that is nearest to `magnitude`. Ties round up.
int LevelOf(float magnitude, const Levels& levels, int largest_level) {
  if (levels.step == 0.0f) return 0;
  const float level = (magnitude - levels.low) / levels.step + 0.5f;
  if (!(level < static_cast<float>(largest_level))) return largest_level;
  return level > 0.0f ? static_cast<int>(level) : 0;
}

class TopKCodec final : public Codec {
 public:
  explicit TopKCodec(params::Encoding encoding) : encoding_(encoding) {}

  params::Encoding encoding() const override { return encoding_; }

  void Encode(const float* values, int64_t n, const kernels::Rounding& /*rounding*/,
              std::byte* encoded) const override {
    for (int64_t begin = 0; begin < n; begin += params::kTopKBlock) {
      const int64_t size = std::min(params::kTopKBlock, n - begin);
      EncodeBlock(values + begin, size, encoded);
      encoded += params::EncodedBytes(encoding_, size);
    }
  }

  void Decode(const std::byte* encoded, int64_t n, float* values) const override {
    ForEachBlock(
        encoding_, encoded, n,
        [values](int64_t begin, int64_t size) { std::fill_n(values + begin, size, kNan); },
        [values](int64_t begin, int64_t size, const KeptElements& kept) {
          std::fill_n(values + begin, size, 0.0f);
          for (int64_t i = 0; i < kept.count; ++i) values[begin + kept.places[i]] = kept.values[i];
        });
  }

  bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const override {
    bool is_below = true;
    for (int64_t begin = 0; begin < n; begin += params::kTopKBlock) {
      const Levels levels =
          BlockBytes::ReadLevels(encoded + params::EncodedBytes(encoding_, begin));
      const Levels positive = {MagnitudeOf(levels.low), MagnitudeOf(levels.step)};
      const int largest = BlockBytes(encoding_, 1).largest_level();
      is_below = is_below && positive.MagnitudeAt(largest) < limit;
    }
    return is_below;
  }

 private:
  void EncodeBlock(const float* values, int64_t n, std::byte* block) const {
    const BlockBytes bytes(encoding_, n);
    uint16_t places[params::kMaxTopK];
    uint8_t codes[params::kMaxTopK] = {};
    Levels levels;
    const uint32_t largest = codec::BestLoops().max_magnitude(values, n);
    if (largest >= kInfinity || std::bit_cast<float>(largest) < kSmallestTopK) {
      for (int64_t i = 0; i < bytes.kept(); ++i) places[i] = static_cast<uint16_t>(i);
      if (largest >= kInfinity) levels.low = kNan;
    } else {
      Select(values, n, bytes.kept(), largest, places);
      float magnitudes[params::kMaxTopK];
      for (int64_t i = 0; i < bytes.kept(); ++i) magnitudes[i] = MagnitudeOf(values[places[i]]);
      levels = LevelsFrom(RangeOf(magnitudes, bytes, std::bit_cast<float>(largest)),
                          bytes.largest_level());
      for (int64_t i = 0; i < bytes.kept(); ++i) {
        const int sign = std::signbit(values[places[i]]) ? bytes.sign_bit() : 0;
        codes[i] =
            static_cast<uint8_t>(LevelOf(magnitudes[i], levels, bytes.largest_level()) | sign);
      }
    }
    bytes.Write(levels, places, codes, block);
  }

  static Levels RangeOf(const float* magnitudes, const BlockBytes& bytes, float largest) {
    if (bytes.largest_level() == 1) return TwoMeans(magnitudes, bytes.kept(), largest);
    return {*std::min_element(magnitudes, magnitudes + bytes.kept()), largest};
  }

  const params::Encoding encoding_;
};

std::vector<TopKCodec> AllOf(int bits) {
  std::vector<TopKCodec> codecs;
  codecs.reserve(params::kMaxTopK);
  for (int topk = 1; topk <= params::kMaxTopK; ++topk)
    codecs.emplace_back(params::Encoding::TopK(topk, bits));
  return codecs;
}

}  // namespace

const Codec& TopKCodecOf(params::Encoding encoding) {
  static const std::vector<TopKCodec>& two_bits = *new std::vector<TopKCodec>(AllOf(2));
  static const std::vector<TopKCodec>& four_bits = *new std::vector<TopKCodec>(AllOf(4));
  return (encoding.topk_bits() == 4 ? four_bits : two_bits)[encoding.topk() - 1];
}

// Copies the kept elements of `acc` to an array first. So AccumulateScaled() rounds their sums in
// the same way as in whole vectors.
void AddTopK(params::Encoding encoding, const std::byte* encoded, int64_t n, float scale,
             float* acc) {
  ForEachBlock(
      encoding, encoded, n,
      [acc](int64_t begin, int64_t size) { std::fill_n(acc + begin, size, kNan); },
      [acc, scale](int64_t begin, int64_t, const KeptElements& kept) {
        float sums[params::kMaxTopK];
        for (int64_t i = 0; i < kept.count; ++i) sums[i] = acc[begin + kept.places[i]];
        vectors::AccumulateScaled(sums, kept.values, scale, kept.count, kernels::Accumulate::kAdd);
        for (int64_t i = 0; i < kept.count; ++i) acc[begin + kept.places[i]] = sums[i];
      });
}

void AddAtTopK(params::Encoding encoding, const std::byte* encoded, int64_t n, float weight,
               float* acc) {
  ForEachBlock(
      encoding, encoded, n, [](int64_t, int64_t) {},
      [acc, weight](int64_t begin, int64_t, const KeptElements& kept) {
        for (int64_t i = 0; i < kept.count; ++i) acc[begin + kept.places[i]] += weight;
      });
}

int64_t FirstMalformedTopK(params::Encoding encoding, const std::byte* encoded, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += params::kTopKBlock) {
    const int64_t size = std::min(params::kTopKBlock, n - begin);
    const int64_t kept = BlockBytes(encoding, size).kept();
    int last = -1;
    for (int64_t i = 0; i < kept; ++i) {
      const int place = BlockBytes::PlaceAt(encoded, i);
      if (place <= last || place >= size) return begin;
      last = place;
    }
    encoded += params::EncodedBytes(encoding, size);
  }
  return n;
}

}  // namespace lodestar::codec
