// SPDX-License-Identifier: Apache-2.0

// Implements elementwise loops over vectors: sums and optimizers. The last elements of a vector may
// not fill a SIMD vector. They are padded and computed by the same code as all others. So results
// do not depend on how a vector is divided.
#include "kernels/simd/tables.h"
#include "kernels/simd/vector.h"

namespace lodestar::simd::LODESTAR_ISA {
namespace {

// Computes z[i] = f(x[i], y[i]).
template <typename F>
inline void Transform(float* z, const float* x, const float* y, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(z + i, f(Load(x + i), Load(y + i)));
  if (i < n) StorePart(z + i, f(LoadPart(x + i, n - i), LoadPart(y + i, n - i)), n - i);
}

void AddScaled(float* y, const float* x, float a, int64_t n) {
  const Vec factor = Broadcast(a);
  Transform(y, x, y, n, [factor](Vec xi, Vec yi) { return Fma(factor, xi, yi); });
}

void Scale(float* y, const float* x, float a, int64_t n) {
  Transform(y, x, x, n, [a](Vec xi, Vec) { return xi * a; });
}

void Subtract(float* z, const float* x, const float* y, int64_t n) {
  Transform(z, x, y, n, [](Vec xi, Vec yi) { return xi - yi; });
}

void Add(float* z, const float* x, const float* y, int64_t n) {
  Transform(z, x, y, n, [](Vec xi, Vec yi) { return xi + yi; });
}

// Minimum number of elements (1 MiB) of outputs that are written with stores that bypass the
// caches. So long an output does not fit into the caches of a core, and such stores need not read
// memory before they write it. Outputs that are also inputs are written with normal stores.
constexpr int64_t kStreamedElements = int64_t{1} << 18;

inline Vec LoadUpTo(const float* p, int64_t count) {
  return count == kLanes ? Load(p) : LoadPart(p, count);
}
inline void StoreUpTo(float* p, Vec v, int64_t count) {
  if (count == kLanes) {
    Store(p, v);
  } else {
    StorePart(p, v, count);
  }
}

// Checks that all added vectors were finite. x - x is 0 for finite x, and NaN for NaN and
// infinities. If one term is NaN, the sum is NaN.
struct FiniteCheck {
  Vec sum = {};
  void Add(Vec v) { sum += v - v; }
  bool AllWere() const { return SumLanes(sum) == 0.0f; }
};

// Sets the n elements of `out`, range by range: out[i .. i + count) = compute(i, count). If
// `streams` is true:
// - the stores bypass the caches;
// - other threads see them only after StreamFence();
// - `out` must not overlap anything that compute() reads.
template <typename Compute>
inline void WriteVectorsTo(float* out, bool streams, int64_t n, Compute compute) {
  int64_t i = 0;
  if (streams && n >= kLanes) {
    const auto position = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) / sizeof(float));
    i = -position & (kLanes - 1);
    if (i > 0) StorePart(out, compute(0, i), i);
    for (; i + kLanes <= n; i += kLanes) Stream(out + i, compute(i, kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) Store(out + i, compute(i, kLanes));
  if (i < n) StorePart(out + i, compute(i, n - i), n - i);
}

// Does the same as WriteVectorsTo(), and calls StreamFence() if needed. Bypasses the caches if the
// vector is long and `elsewhere` is true, which means that `out` overlaps nothing that compute()
// reads.
template <typename Compute>
inline void WriteVectors(float* out, bool elsewhere, int64_t n, Compute compute) {
  const bool streams = elsewhere && n >= kStreamedElements;
  WriteVectorsTo(out, streams, n, compute);
  if (streams) StreamFence();
}

void CopyPastCaches(float* y, const float* x, int64_t n) {
  WriteVectorsTo(
      y, /*streams=*/true, n, [=](int64_t i, int64_t count) __attribute__((always_inline)) {
        return LoadUpTo(x + i, count);
      });
  StreamFence();
}

void DifferencePastCaches(float* z, const float* x, const float* y, float a, int64_t n) {
  WriteVectorsTo(
      z, /*streams=*/true, n, [=](int64_t i, int64_t count) __attribute__((always_inline)) {
        return a * (LoadUpTo(x + i, count) - LoadUpTo(y + i, count));
      });
}

bool WriteScaled(float* y, const float* x, float a, int64_t n) {
  FiniteCheck finite;
  WriteVectors(
      y, y != x, n, [ =, &finite ](int64_t i, int64_t count) __attribute__((always_inline)) {
        const Vec scaled = LoadUpTo(x + i, count) * a;
        finite.Add(scaled);
        return scaled;
      });
  return finite.AllWere();
}

struct AdamWVectors {
  Vec w, m, v;
};

inline AdamWVectors AdamWStepOf(AdamWVectors s, Vec g, const AdamWFactors& f) {
  g = g * f.gradient_scale;
  s.m = Fma(Broadcast(f.beta1), s.m, g * f.one_minus_beta1);
  s.v = Fma(Broadcast(f.beta2), s.v, g * g * f.one_minus_beta2);
  const Vec denominator =
      Fma(Sqrt(s.v), Broadcast(f.inverse_root_correction2), Broadcast(f.epsilon));
  s.w = Fma(s.w, Broadcast(-f.decay), s.w);
  s.w = s.w - (s.m * f.step_size) / denominator;
  return s;
}

bool AdamW(float* w_out, const float* w_in, float* m, float* v, const float* g, int64_t n,
           const AdamWFactors& factors) {
  const AdamWFactors f = factors;  // a local copy that no store can change
  FiniteCheck finite;
  WriteVectors(
      w_out, w_out != w_in, n,
      [ =, &finite ](int64_t i, int64_t count) __attribute__((always_inline)) {
        const AdamWVectors s =
            AdamWStepOf({LoadUpTo(w_in + i, count), LoadUpTo(m + i, count), LoadUpTo(v + i, count)},
                        LoadUpTo(g + i, count), f);
        StoreUpTo(m + i, s.m, count);
        StoreUpTo(v + i, s.v, count);
        finite.Add(s.w + (s.m + s.v));
        return s.w;
      });
  return finite.AllWere();
}

struct MomentumVectors {
  Vec w, state;
};

template <bool kHasState>
inline MomentumVectors MomentumStepOf(MomentumVectors s, Vec g, const MomentumFactors& f) {
  g = g * f.gradient_scale;
  Vec update = g;
  if (kHasState) {
    s.state = Fma(Broadcast(f.momentum), s.state, g);
    update = f.nesterov ? Fma(Broadcast(f.momentum), s.state, g) : s.state;
  }
  s.w = Fma(s.w, Broadcast(-f.decay), s.w);
  s.w = Fma(update, Broadcast(-f.learning_rate), s.w);
  return s;
}

template <bool kHasState>
bool MomentumOf(float* w_out, const float* w_in, float* state, const float* g, int64_t n,
                const MomentumFactors& factors) {
  const MomentumFactors f = factors;  // a local copy that no store can change
  FiniteCheck finite;
  WriteVectors(
      w_out, w_out != w_in, n,
      [ =, &finite ](int64_t i, int64_t count) __attribute__((always_inline)) {
        const MomentumVectors s = MomentumStepOf<kHasState>(
            {LoadUpTo(w_in + i, count), kHasState ? LoadUpTo(state + i, count) : Vec{}},
            LoadUpTo(g + i, count), f);
        if (kHasState) StoreUpTo(state + i, s.state, count);
        finite.Add(kHasState ? s.w + s.state : s.w);
        return s.w;
      });
  return finite.AllWere();
}

bool Momentum(float* w_out, const float* w_in, float* state, const float* g, int64_t n,
              const MomentumFactors& f) {
  return state != nullptr ? MomentumOf<true>(w_out, w_in, state, g, n, f)
                          : MomentumOf<false>(w_out, w_in, state, g, n, f);
}

constexpr int kSumLanes = 16;

inline double SumOfProducts(const float* x, const float* y, int64_t n) {
  typedef double Doubles __attribute__((vector_size(kSumLanes * 8)));
  typedef float Floats __attribute__((vector_size(kSumLanes * 4)));
  Doubles sums = {};
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    Floats x_part;
    Floats y_part;
    __builtin_memcpy(&x_part, x + i, sizeof(x_part));
    __builtin_memcpy(&y_part, y + i, sizeof(y_part));
    // The product of two floats is exact in f64.
    sums += __builtin_convertvector(x_part, Doubles) * __builtin_convertvector(y_part, Doubles);
  }
  double lanes[kSumLanes];
  __builtin_memcpy(lanes, &sums, sizeof(lanes));
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += double{x[i]} * double{y[i]};
  for (int width = kSumLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

double SumOfSquares(const float* x, int64_t n) { return SumOfProducts(x, x, n); }

double DotProduct(const float* x, const float* y, int64_t n) { return SumOfProducts(x, y, n); }

// Compares magnitudes as integers, because the bits of positive floats have the same order as the
// values. The bits of a NaN are above all others. If a magnitude is not below `limit`, largest -
// bits is negative. This sets the sign bit in `signs`.
bool AllBelow(const float* x, float limit, int64_t n) {
  const IntVec largest = reinterpret_cast<IntVec>(Broadcast(limit)) - 1;
  IntVec signs = {};
  const auto look = [&](Vec v) __attribute__((always_inline)) {
    signs |= largest - (reinterpret_cast<IntVec>(v) & 0x7fffffff);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) look(Load(x + i));
  if (i < n) look(LoadPart(x + i, n - i));
  int32_t all = 0;
  for (int lane = 0; lane < kLanes; ++lane) all |= signs[lane];
  return all >= 0;
}

// Number of partial sums of squares. Element i is added to partial sum i % 64. All instruction sets
// have lanes that divide this number, so that they all add in the same order.
constexpr int kSquareLanes = 64;
constexpr int kSquareVectors = kSquareLanes / kLanes;
// Number of elements after which the partial sums are added in f64. Each partial sum then has 16
// squares, and does not overflow if the elements are below 1e18.
constexpr int64_t kSquareBlock = int64_t{kSquareLanes} * 16;

bool AllBelowWithSquareSum(const float* x, float limit, int64_t n, double* square_sum) {
  const IntVec largest = reinterpret_cast<IntVec>(Broadcast(limit)) - 1;
  IntVec signs = {};
  double lanes[kSquareLanes] = {};
  for (int64_t begin = 0; begin < n; begin += kSquareBlock) {
    const int64_t end = begin + kSquareBlock < n ? begin + kSquareBlock : n;
    Vec sums[kSquareVectors] = {};
    const auto take = [&](int vector, Vec v) __attribute__((always_inline)) {
      signs |= largest - (reinterpret_cast<IntVec>(v) & 0x7fffffff);
      sums[vector] += v * v;
    };
    int64_t i = begin;
    for (; i + kSquareLanes <= end; i += kSquareLanes) {
      for (int vector = 0; vector < kSquareVectors; ++vector) {
        take(vector, Load(x + i + vector * kLanes));
      }
    }
    for (int vector = 0; i < end; ++vector, i += kLanes) {
      take(vector, end - i >= kLanes ? Load(x + i) : LoadPart(x + i, end - i));
    }
    float block[kSquareLanes];
    __builtin_memcpy(block, sums, sizeof(block));
    for (int lane = 0; lane < kSquareLanes; ++lane) lanes[lane] += double{block[lane]};
  }
  for (int width = kSquareLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  *square_sum = lanes[0];
  int32_t all = 0;
  for (int lane = 0; lane < kLanes; ++lane) all |= signs[lane];
  return all >= 0;
}

}  // namespace

void AddElementwise(Loops* loops) {
  loops->add_scaled = AddScaled;
  loops->scale = Scale;
  loops->write_scaled = WriteScaled;
  loops->copy_past_caches = CopyPastCaches;
  loops->difference_past_caches = DifferencePastCaches;
  loops->subtract = Subtract;
  loops->add = Add;
  loops->adamw = AdamW;
  loops->momentum = Momentum;
  loops->sum_of_squares = SumOfSquares;
  loops->dot_product = DotProduct;
  loops->all_below = AllBelow;
  loops->all_below_with_square_sum = AllBelowWithSquareSum;
}

}  // namespace lodestar::simd::LODESTAR_ISA
