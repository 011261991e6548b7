// SPDX-License-Identifier: Apache-2.0

// For each element, drops the lowest and the highest values, and computes the mean of the others. A
// sorting network sorts the values of an element (merge exchange: Knuth, TAOCP vol. 3, algorithm
// 5.2.2M). The network makes the same comparisons for all elements, so SIMD vectors can be sorted
// like single values.
#include "kernels/simd/tables.h"
#include "kernels/simd/vector.h"

namespace lodestar::simd::LODESTAR_ISA {
namespace {

// Number of SIMD vectors that are compared one after the other, which hides the latency of a
// comparison. The tiles of 32 values still fit into the first-level cache.
constexpr int kTile = 4;
constexpr int64_t kTileElements = int64_t{kTile} * kLanes;

// Distance by which reads of each vector are prefetched, in elements. While the processor sorts, it
// does not read far enough ahead by itself.
constexpr int64_t kAhead = 256;

struct Network {
  // Maximum number of comparisons of a network. A network for 32 values has 191.
  static constexpr int kMaxSize = 191;
  struct Comparison {
    uint8_t low, high;
  };
  int size = 0;
  Comparison comparisons[kMaxSize];

  explicit Network(int count) {
    int top = 1;
    while (2 * top < count) top *= 2;
    for (int p = top; p > 0; p /= 2) {
      int q = top;
      int r = 0;
      for (int d = p; d > 0; d = q - p, q /= 2, r = p) {
        for (int i = 0; i < count - d; ++i) {
          if ((i & p) == r) {
            comparisons[size++] = {static_cast<uint8_t>(i), static_cast<uint8_t>(i + d)};
          }
        }
        if (q == p) break;
      }
    }
  }
};

struct Tile {
  Vec v[kTile];
};

inline void LoadTile(Tile* tile, const float* p, int64_t count) {
  if (count >= kTileElements) {
    for (int t = 0; t < kTile; ++t) tile->v[t] = Load(p + t * kLanes);
    return;
  }
  for (int t = 0; t < kTile; ++t) {
    const int64_t left = count - t * kLanes;
    if (left >= kLanes) {
      tile->v[t] = Load(p + t * kLanes);
    } else {
      tile->v[t] = left > 0 ? LoadPart(p + t * kLanes, left) : Vec{};
    }
  }
}

inline void StoreTile(float* p, const Tile& tile, int64_t count) {
  for (int t = 0; t < kTile; ++t) {
    const int64_t left = count - t * kLanes;
    if (left >= kLanes) {
      Store(p + t * kLanes, tile.v[t]);
    } else if (left > 0) {
      StorePart(p + t * kLanes, tile.v[t], left);
    }
  }
}

// Sorts `values` in every lane. With kWeighted, also moves each weight together with its value.
template <bool kWeighted>
inline void Sort(const Network& network, Tile* values, Tile* weights) {
  for (int c = 0; c < network.size; ++c) {
    const auto [low, high] = network.comparisons[c];
    for (int t = 0; t < kTile; ++t) {
      const Vec a = values[low].v[t];
      const Vec b = values[high].v[t];
      if constexpr (!kWeighted) {
        values[low].v[t] = Lower(a, b);
        values[high].v[t] = Higher(a, b);
      } else {
        const IntVec is_swapped = a > b;
        values[low].v[t] = Select(is_swapped, b, a);
        values[high].v[t] = Select(is_swapped, a, b);
        const Vec wa = weights[low].v[t];
        const Vec wb = weights[high].v[t];
        weights[low].v[t] = Select(is_swapped, wb, wa);
        weights[high].v[t] = Select(is_swapped, wa, wb);
      }
    }
  }
}

template <bool kWeighted>
void TrimmedMeanOf(float* out, const float* const* values, const float* weights, int count,
                   int trim, int64_t n) {
  const Network network(trim > 0 ? count : 1);
  Tile sorted[kMaxTrimmedValues];
  Tile weight_of[kWeighted ? kMaxTrimmedValues : 1];
  const Vec share = Broadcast(1.0f / static_cast<float>(count - 2 * trim));
  for (int64_t begin = 0; begin < n; begin += kTileElements) {
    for (int i = 0; i < count; ++i) {
      LoadTile(&sorted[i], values[i] + begin, n - begin);
      for (int t = 0; t < kTile; ++t) {
        __builtin_prefetch(values[i] + begin + kAhead + t * kLanes);
      }
      if constexpr (kWeighted) {
        for (int t = 0; t < kTile; ++t) weight_of[i].v[t] = Broadcast(weights[i]);
      }
    }
    Sort<kWeighted>(network, sorted, weight_of);
    Tile sum = {};
    Tile total = {};
    for (int i = trim; i < count - trim; ++i) {
      for (int t = 0; t < kTile; ++t) {
        if constexpr (kWeighted) {
          sum.v[t] += sorted[i].v[t] * weight_of[i].v[t];
          total.v[t] += weight_of[i].v[t];
        } else {
          sum.v[t] += sorted[i].v[t];
        }
      }
    }
    for (int t = 0; t < kTile; ++t) {
      sum.v[t] = kWeighted ? sum.v[t] / total.v[t] : sum.v[t] * share;
    }
    StoreTile(out + begin, sum, n - begin);
  }
}

void TrimmedMean(float* out, const float* const* values, const float* weights, int count, int trim,
                 int64_t n) {
  if (weights == nullptr) {
    TrimmedMeanOf<false>(out, values, nullptr, count, trim, n);
  } else {
    TrimmedMeanOf<true>(out, values, weights, count, trim, n);
  }
}

}  // namespace

void AddTrimmed(Loops* loops) { loops->trimmed_mean = TrimmedMean; }

}  // namespace lodestar::simd::LODESTAR_ISA
